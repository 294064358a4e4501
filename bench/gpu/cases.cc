// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/cases.h"

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/cases.h"
#include "bench/echo.h"
#include "bench/gpu/case_loss.h"
#include "bench/gpu/case_nccl.h"
#include "bench/gpu/case_watch.h"
#include "bench/gpu/load.h"
#include "bench/gpu/memory.h"
#include "bench/gpu/peer_copy.h"
#include "bench/gpu/streams.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

using ::ferry::testing::GpuDriver;

constexpr uint64_t kStream = 256;  // of 256 MiB, behind which others wait

class Bench {
 public:
  Bench(const GpuSettings& settings, const GpuDriver* driver, Nodes& nodes, int route)
      : settings_(settings), driver_(driver), nodes_(nodes), route_(route) {}

  absl::Status Run(Report& report) {
    for (const std::string& name : settings_.cases) {
      const CaseWatch watch(Named(name));
      RETURN_IF_ERROR(RunCase(name, report));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status RunCase(absl::string_view name, Report& report) {
    if (route_ == FERRY_ROUTE_TCP || route_ == FERRY_ROUTE_UCX) {
      if (name == "large") return BesideHosts(report);
      return name == "many" ? Many(report, 1000, 64 << 10, {}) : absl::OkStatus();
    }
    if (route_ == FERRY_ROUTE_NCCL) {
      if (name == "sharing") return Sharing(report, 5000);
      return MeasureBesideNccl(
          settings_, driver_, name, [this] { return OpenPair(); }, report);
    }
    // Rows of the others, and what is of communicators only.
    for (const char* const others :
         {"peers", "comms", "cliques", "programs", "jobs", "fused", "fused_load"}) {
      if (name == others) return absl::OkStatus();
    }
    if (name == "large") return Large(report);
    if (name == "sharing") return Sharing(report, 2000);
    if (name == "loss") return Loss(report);
    if (name == "memory") return Memory(report);
    if (name == "load") return UnderLoad(report);
    if (name == "many") {
      RETURN_IF_ERROR(Many(report, 1000, 64 << 10, 0.25));
      return Many(report, 10'000, 4 << 10, 0.3);
    }
    RETURN_IF_ERROR(Latency(report));
    return StreamToStream(report);
  }
  bool local() const { return route_ == FERRY_ROUTE_LOCAL; }
  // The node of the destination.
  int there() const { return local() ? 0 : 1; }
  int64_t destination() const { return nodes_.Gpu(there(), local() ? 1 : 0); }
  std::string Named(absl::string_view what) const {
    return absl::StrCat(what, " ", tools::RouteText(route_));
  }

  absl::StatusOr<tools::BenchPair> OpenPair(bool back = false, bool hosts = false) const {
    tools::BenchPairOptions options;
    options.receiver_command = {settings_.self, "bench-receiver"};
    options.client_dir = nodes_.ClientDir(back ? there() : 0);
    options.peer_client_dir = nodes_.ClientDir(back ? 0 : there());
    const int64_t first = hosts ? nodes_.Host(0) : nodes_.Gpu(0, 0);
    const int64_t second = hosts ? nodes_.Host(there()) : destination();
    options.source = back ? second : first;
    options.destination = back ? first : second;
    options.route = route_;
    options.patience = kOrderPatience;
    return tools::BenchPair::Open(options);
  }

  void Add(Report& report, std::string name, const char* unit, double warm, bool at_most,
           std::optional<double> target, const char* peer = "",
           std::optional<double> peer_warm = {}) const {
    Row row;
    row.name = std::move(name);
    row.unit = unit;
    row.warm = warm;
    row.peer = peer;
    row.peer_warm = peer_warm;
    row.at_most = at_most;
    row.target = target;
    report.Add(std::move(row));
  }

  absl::Status BesideHosts(Report& report) {
    const uint64_t bytes = settings_.large;
    ASSIGN_OR_RETURN(tools::BenchPair gpus, OpenPair());
    ASSIGN_OR_RETURN(tools::BenchPair hosts, OpenPair(false, /*hosts=*/true));
    RETURN_IF_ERROR(gpus.MakeArenas(bytes).status());
    RETURN_IF_ERROR(hosts.MakeArenas(bytes).status());
    std::vector<double> between_gpus, between_hosts;
    for (int round = 0; round < settings_.rounds + 1; ++round) {
      ASSIGN_OR_RETURN(const absl::Duration moved, gpus.Run(1, bytes));
      ASSIGN_OR_RETURN(const absl::Duration peer, hosts.Run(1, bytes));
      if (round == 0) continue;  // connections and contexts wake up
      between_gpus.push_back(tools::GigabytesPerSecond(bytes, moved));
      between_hosts.push_back(tools::GigabytesPerSecond(bytes, peer));
    }
    for (tools::BenchPair* pair : {&gpus, &hosts}) {
      RETURN_IF_ERROR(pair->Check([&] { return pair->Run(1, bytes); }).status());
    }
    Add(report, Named(tools::HumanSize(bytes)) + " staged", "GB/s", tools::Median(between_gpus),
        false, route_ == FERRY_ROUTE_TCP ? 0.95 : 0.9, "the same between host devices",
        tools::Median(between_hosts));
    return absl::OkStatus();
  }

  absl::Status Large(Report& report) {
    const uint64_t bytes = settings_.large;
    constexpr int kTimes = 64;  // both ways, without a pause
    PeerCopy peer(driver_, bytes);
    RETURN_IF_ERROR(peer.Make());
    ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair());
    ASSIGN_OR_RETURN(tools::BenchPair back, OpenPair(true));
    RETURN_IF_ERROR(pair.MakeArenas(bytes).status());
    RETURN_IF_ERROR(back.MakeArenas(bytes).status());
    RETURN_IF_ERROR(pair.Prepare(1, bytes));
    std::vector<double> prepared, posted, both, peer_one, peer_both;
    for (int round = 0; round < settings_.rounds + 1; ++round) {
      ASSIGN_OR_RETURN(const absl::Duration copied, peer.Copy(false));
      ASSIGN_OR_RETURN(const absl::Duration fired, pair.Fire());
      ASSIGN_OR_RETURN(const absl::Duration moved, pair.Run(1, bytes));
      ASSIGN_OR_RETURN(const absl::Duration copied_both, peer.Copy(true, kTimes));
      ASSIGN_OR_RETURN(const absl::Duration moved_both, BothWays(pair, back, kTimes, bytes));
      if (round == 0) continue;  // links and contexts wake up
      prepared.push_back(tools::GigabytesPerSecond(bytes, fired));
      posted.push_back(tools::GigabytesPerSecond(bytes, moved));
      both.push_back(tools::GigabytesPerSecond(2 * kTimes * bytes, moved_both));
      peer_one.push_back(tools::GigabytesPerSecond(bytes, copied));
      peer_both.push_back(tools::GigabytesPerSecond(2 * kTimes * bytes, copied_both));
    }
    RETURN_IF_ERROR(pair.Check([&] { return pair.Fire(); }).status());
    RETURN_IF_ERROR(pair.Check([&] { return pair.Run(1, bytes); }).status());
    tools::BenchPair* const ways[] = {&pair, &back};
    RETURN_IF_ERROR(tools::BenchPair::CheckAll(ways, [&] {
                      return BothWays(pair, back, kTimes, bytes);
                    }).status());
    const std::string size = tools::HumanSize(bytes);
    Add(report, Named(size + " prepared"), "GB/s", tools::Median(prepared), false,
        local() ? 0.99 : 0.985, "cuMemcpyPeerAsync", tools::Median(peer_one));
    const auto beside = [&](const char* peer, std::optional<double> rate,
                            std::optional<double> target) {
      if (!rate || local()) return;
      Add(report, Named(size + " prepared"), "GB/s", tools::Median(prepared), false, target, peer,
          rate);
    };
    beside("ucx_perftest, cuda_ipc", settings_.peers.ucx_large, 0.99);
    beside("NIXL", settings_.peers.nixl_large, 1.5);
    beside("PyTorch, one process", settings_.peers.torch_large, {});
    Add(report, Named(size + " posted"), "GB/s", tools::Median(posted), false, {},
        "cuMemcpyPeerAsync", tools::Median(peer_one));
    Add(report, Named(size + " both ways at once"), "GB/s", tools::Median(both), false, 0.95,
        "cuMemcpyPeerAsync both ways", tools::Median(peer_both));
    return CpuOfAGigabyte(report, pair, bytes);
  }

  // `times` each way, two under way.
  static absl::StatusOr<absl::Duration> BothWays(tools::BenchPair& pair, tools::BenchPair& back,
                                                 uint64_t times, uint64_t bytes) {
    absl::StatusOr<absl::Duration> backwards;
    const int64_t start = tools::MonotonicNanoseconds();
    std::thread other([&] { backwards = back.Stream(times, bytes, 1, 2); });
    const absl::StatusOr<absl::Duration> forwards = pair.Stream(times, bytes, 1, 2);
    other.join();
    RETURN_IF_ERROR(forwards.status());
    RETURN_IF_ERROR(backwards.status());
    return absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
  }

  // What the daemons' CPUs do for it, from the kernel's ticks.
  absl::Status CpuOfAGigabyte(Report& report, tools::BenchPair& pair, uint64_t bytes) {
    constexpr uint64_t kFirings = 400;
    absl::Duration spent;
    for (int sign : {-1, 1}) {
      for (int node = 0; node <= there(); ++node) {
        ASSIGN_OR_RETURN(const absl::Duration cpu, CpuTime(nodes_.pid(node)));
        spent += sign * cpu;
      }
      if (sign < 0) RETURN_IF_ERROR(pair.FireMany(kFirings).status());
    }
    Add(report, Named("CPU of the daemons for a GB"), "ms",
        absl::ToDoubleMilliseconds(spent) * 1e9 / static_cast<double>(kFirings * bytes), true, {});
    return absl::OkStatus();
  }

  absl::Status Latency(Report& report) {
    ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair());
    RETURN_IF_ERROR(pair.MakeArenas(16).status());
    RETURN_IF_ERROR(pair.PreparePing(8));
    RETURN_IF_ERROR(pair.Ping(settings_.pings / 10).status());
    ASSIGN_OR_RETURN(const std::vector<absl::Duration> pings, pair.Ping(settings_.pings));
    Add(report, Named("8 B prepared, p50"), "us", absl::ToDoubleMicroseconds(tools::Median(pings)),
        true, 20);
    RETURN_IF_ERROR(pair.Check([&] { return pair.PingOnce(); }).status());
    Add(report, Named("8 B prepared, p99"), "us",
        absl::ToDoubleMicroseconds(tools::Quantile(pings, 0.99)), true, {});
    return PostedLatency(report, pair);
  }

  absl::Status PostedLatency(Report& report, tools::BenchPair& pair) {
    std::vector<absl::Duration> posted;
    for (uint64_t i = 0; i < settings_.pings / 4 + 10; ++i) {
      ASSIGN_OR_RETURN(const absl::Duration took, pair.Run(1, 8));
      if (i >= 10) posted.push_back(took);
    }
    RETURN_IF_ERROR(pair.Check([&] { return pair.Run(1, 8); }).status());
    Add(report, Named("8 B posted, p50"), "us", absl::ToDoubleMicroseconds(tools::Median(posted)),
        true, local() ? 150 : 220);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<StreamPair>> OpenStreams() const {
    return StreamPair::Open(
        *driver_, {nodes_.ClientDir(0), static_cast<uint64_t>(nodes_.Gpu(0, 0))},
        {nodes_.ClientDir(there()), static_cast<uint64_t>(destination())}, route_);
  }

  absl::Status StreamToStream(Report& report) {
    ASSIGN_OR_RETURN(const auto streams, OpenStreams());
    ASSIGN_OR_RETURN(const absl::Duration median, streams->Median(settings_.pings / 4));
    Add(report, Named("8 B prepared, stream to stream, p50"), "us",
        absl::ToDoubleMicroseconds(median), true, 35);
    return absl::OkStatus();
  }

  absl::Status Memory(Report& report) {
    ASSIGN_OR_RETURN(
        const DeviceMemory memory,
        MeasureDeviceMemory(*driver_, kDestinationGpu, settings_.free_before, settings_.self,
                            nodes_.ClientDir(there()), static_cast<uint64_t>(destination())));
    const auto add = [&](const char* what, int64_t bytes, std::optional<double> target) {
      Add(report, Named(what), "MiB", static_cast<double>(bytes) / (1 << 20), true, target);
    };
    add("device memory of an idle daemon", memory.idle, 0);
    add("device memory of a bare program's context", memory.bare_context, {});
    add("device memory of a daemon that is used, without arenas", memory.context, {});
    add("device memory of one more session, without its arena", memory.session, {});
    add("device memory of a daemon when all have gone", memory.left, {});
    return absl::OkStatus();
  }

  absl::Status Many(Report& report, uint64_t count, uint64_t bytes,
                    std::optional<double> target_ms) {
    ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair());
    RETURN_IF_ERROR(pair.MakeArenas(count * bytes).status());
    const std::string what = absl::StrCat(tools::HumanCount(count), " x ", tools::HumanSize(bytes));
    std::vector<absl::Duration> posted, prepared, blocks, blocks_prepared, echoes;
    ASSIGN_OR_RETURN(EchoClient echo, EchoClient::Start(settings_.self));
    RETURN_IF_ERROR(pair.Run(count, bytes).status());
    for (int round = 0; round < settings_.rounds; ++round) {
      ASSIGN_OR_RETURN(posted.emplace_back(), pair.Run(count, bytes));
      ASSIGN_OR_RETURN(echoes.emplace_back(), echo.Descriptors(count, bytes, kRateBatch));
    }
    RETURN_IF_ERROR(pair.Check([&] { return pair.Run(count, bytes); }).status());
    RETURN_IF_ERROR(pair.RunBlocks(count, bytes).status());
    for (int round = 0; round < settings_.rounds; ++round) {
      ASSIGN_OR_RETURN(const absl::Duration took, pair.RunBlocks(count, bytes));
      blocks.push_back(took);
    }
    RETURN_IF_ERROR(pair.Check([&] { return pair.RunBlocks(count, bytes); }).status());
    RETURN_IF_ERROR(pair.PrepareBlocks(count, bytes));
    for (int round = 0; round < 4 * settings_.rounds; ++round) {
      ASSIGN_OR_RETURN(blocks_prepared.emplace_back(), pair.Fire());
    }
    RETURN_IF_ERROR(pair.Check([&] { return pair.Fire(); }).status());
    RETURN_IF_ERROR(pair.Prepare(count, bytes));
    for (int round = 0; round < 4 * settings_.rounds; ++round) {
      ASSIGN_OR_RETURN(prepared.emplace_back(), pair.Fire());
    }
    RETURN_IF_ERROR(pair.Check([&] { return pair.Fire(); }).status());
    const auto milliseconds = [](const std::vector<absl::Duration>& all) {
      return absl::ToDoubleMilliseconds(tools::Median(all));
    };
    Add(report, Named(what + " prepared"), "ms", milliseconds(prepared), true, target_ms);
    const auto beside = [&](const char* peer, std::optional<double> took, double target) {
      if (!took || route_ == FERRY_ROUTE_UCX) return;
      Add(report, Named(what + " prepared"), "ms", milliseconds(prepared), true, target, peer,
          took);
    };
    const GpuPeers& peers = settings_.peers;
    if (bytes == kSmall) {
      beside("ucx_perftest, cuda_ipc", peers.ucx_many, 1.0 / 10);
      beside("NIXL", peers.nixl_many, 1.0 / 20);
      beside("PyTorch, one process", peers.torch_many, 1);
    } else {
      beside("NIXL", peers.nixl_tiny, 1.0 / 100);
    }
    Add(report, Named(what + " posted"), "ms", milliseconds(posted), true,
        bytes == kSmall && target_ms ? std::optional<double>(1) : std::nullopt,
        "prepared, and two echo RPCs of as many descriptors",
        milliseconds(prepared) + 2 * milliseconds(echoes));
    Add(report, Named(what + " as one, by index table, prepared"), "ms",
        milliseconds(blocks_prepared), true, target_ms);
    Add(report, Named(what + " as one, by index table, posted"), "ms", milliseconds(blocks), true,
        {});
    return absl::OkStatus();
  }

  // Another session's stream beside 64 KiB, and beside an equal one.
  absl::Status Sharing(Report& report, double most_us) {
    ASSIGN_OR_RETURN(tools::BenchPair small, OpenPair());
    ASSIGN_OR_RETURN(tools::BenchPair one, OpenPair());
    ASSIGN_OR_RETURN(tools::BenchPair other, OpenPair());
    return MeasureSharing(small, one, other, settings_.rounds,
                          {kStream, Named("64 KiB behind 64 GiB of another session, p99"), most_us,
                           Named("two equal sessions, the lesser's share")},
                          report);
  }

  absl::Status Loss(Report& report) {
    return MeasureGpuLoss(
        settings_, *driver_,
        {nodes_, there(), static_cast<uint64_t>(nodes_.Gpu(0, 0)),
         static_cast<uint64_t>(destination()), route_, [this] { return OpenPair(); }},
        report);
  }

  static absl::Status CheckPrepared(std::initializer_list<tools::BenchPair*> fired,
                                    tools::BenchPair& pings) {
    for (tools::BenchPair* pair : fired) {
      RETURN_IF_ERROR(pair->Check([&] { return pair->Fire(); }).status());
    }
    return pings.Check([&] { return pings.PingOnce(); }).status();
  }

  // What changes when the SMs are busy.
  absl::Status UnderLoad(Report& report) {
    constexpr uint64_t kBytes = uint64_t{256} << 20;
    PeerCopy peer(driver_, kBytes);
    RETURN_IF_ERROR(peer.Make());
    ASSIGN_OR_RETURN(tools::BenchPair large, OpenPair());
    ASSIGN_OR_RETURN(tools::BenchPair tiny, OpenPair());
    ASSIGN_OR_RETURN(tools::BenchPair many, OpenPair());
    ASSIGN_OR_RETURN(const auto streams, OpenStreams());
    RETURN_IF_ERROR(large.MakeArenas(kBytes).status());
    RETURN_IF_ERROR(tiny.MakeArenas(16).status());
    RETURN_IF_ERROR(many.MakeArenas(1000 * kSmall).status());
    RETURN_IF_ERROR(large.Prepare(1, kBytes));
    RETURN_IF_ERROR(tiny.PreparePing(8));
    RETURN_IF_ERROR(many.Prepare(1000, kSmall));
    struct Figures {
      absl::Duration large, tiny, many, peer, streams;
    };
    const auto measure = [&]() -> absl::StatusOr<Figures> {
      std::vector<absl::Duration> larges, manies, peers;
      for (int i = 0; i < 4 * settings_.rounds; ++i) {
        ASSIGN_OR_RETURN(larges.emplace_back(), large.Fire());
        ASSIGN_OR_RETURN(peers.emplace_back(), peer.Copy(false));
        ASSIGN_OR_RETURN(manies.emplace_back(), many.Fire());
      }
      ASSIGN_OR_RETURN(std::vector<absl::Duration> pings, tiny.Ping(settings_.pings));
      ASSIGN_OR_RETURN(const absl::Duration crossed, streams->Median(settings_.pings / 4));
      return Figures{tools::Median(larges), tools::Median(pings), tools::Median(manies),
                     tools::Median(peers), crossed};
    };
    ASSIGN_OR_RETURN(const Figures idle, measure());
    auto load = GpuLoad::Start(2);
    if (absl::IsUnavailable(load.status())) {
      std::fprintf(stderr, "not measured under load: %s\n",
                   std::string(load.status().message()).c_str());
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(load.status());
    ASSIGN_OR_RETURN(const double alone, (*load)->RateWhile(nullptr));
    ASSIGN_OR_RETURN(const Figures busy, measure());
    ASSIGN_OR_RETURN(const double beside_us,
                     (*load)->RateWhile([&] { return large.FireMany(20).status(); }));
    ASSIGN_OR_RETURN(const double beside_peer,
                     (*load)->RateWhile([&] { return peer.Copy(false, 20).status(); }));
    const std::optional<double> ucx =
        settings_.peers.ucx_large ? UcxBetweenGpus(kBytes, 40) : std::nullopt;
    RETURN_IF_ERROR(CheckPrepared({&large, &many}, tiny));
    if (ucx) {
      Add(report, Named("256 MiB prepared, under load"), "GB/s",
          tools::GigabytesPerSecond(kBytes, busy.large), false, 1.35, "ucx_perftest, under load",
          ucx);
    }
    Add(report, Named("256 MiB prepared, under load"), "GB/s",
        tools::GigabytesPerSecond(kBytes, busy.large), false, 0.97, "idle",
        tools::GigabytesPerSecond(kBytes, idle.large));
    Add(report, "cuMemcpyPeerAsync of 256 MiB, under load", "GB/s",
        tools::GigabytesPerSecond(kBytes, busy.peer), false, {}, "idle",
        tools::GigabytesPerSecond(kBytes, idle.peer));
    Add(report, Named("products beside 256 MiB again and again"), "TFLOP/s", beside_us, false, 0.99,
        "beside cuMemcpyPeerAsync", beside_peer);
    Add(report, Named("products beside 256 MiB again and again"), "TFLOP/s", beside_us, false, 0.90,
        "alone", alone);
    Add(report, Named("8 B prepared under load, p50"), "us", absl::ToDoubleMicroseconds(busy.tiny),
        true, 1.3, "idle", absl::ToDoubleMicroseconds(idle.tiny));
    Add(report, Named("8 B prepared under load, stream to stream, p50"), "us",
        absl::ToDoubleMicroseconds(busy.streams), true, 1.3, "idle",
        absl::ToDoubleMicroseconds(idle.streams));
    Add(report, Named("1,000 x 64 KiB prepared, under load"), "ms",
        absl::ToDoubleMilliseconds(busy.many), true, 1.4);
    return absl::OkStatus();
  }

  const GpuSettings& settings_;
  const GpuDriver* const driver_;
  Nodes& nodes_;
  const int route_;
};

}  // namespace

absl::Status MeasureGpus(const GpuSettings& settings, const GpuDriver* driver, Nodes& nodes,
                         int route, Report& report) {
  return Bench(settings, driver, nodes, route).Run(report);
}

}  // namespace ferry::bench
