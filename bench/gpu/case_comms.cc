// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/case_comms.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/gpu/comm_control.h"
#include "bench/gpu/nccl_register.h"
#include "bench/gpu/peer_copy.h"
#include "bench/nodes.h"
#include "tools/ferryctl/bench_pair.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

using ::ferry::testing::GpuDriver;

constexpr uint64_t kFirst = uint64_t{1} << 20;    // of a first transfer
constexpr uint64_t kBeside = uint64_t{64} << 10;  // of one that asks whether a lane is free
constexpr uint64_t kEndless = 100'000;            // transfers, of a stream that is ended
constexpr int kCliqueGpus = 4;

double Milliseconds(absl::Duration time) { return absl::ToDoubleMilliseconds(time); }

absl::Duration Since(int64_t start) {
  return absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
}

void Add(Report& report, std::string name, const char* unit, double measured,
         std::optional<double> at_most = {}, const char* peer = "",
         std::optional<double> peer_measured = {}) {
  Row row;
  row.name = absl::StrCat(name, " nccl");
  row.unit = unit;
  row.warm = measured;
  row.peer = peer;
  row.peer_warm = peer_measured;
  row.at_most = true;
  row.target = at_most;
  report.Add(std::move(row));
}

// From one node's GPU to another one's, or to a host device of its own.
absl::StatusOr<tools::BenchPair> OpenPair(const GpuSettings& settings, const Nodes& nodes, int from,
                                          int to, int route) {
  tools::BenchPairOptions options;
  options.receiver_command = {settings.self, "bench-receiver"};
  options.client_dir = nodes.ClientDir(from);
  options.peer_client_dir = nodes.ClientDir(to);
  options.source = nodes.Gpu(from, 0);
  options.destination = from == to ? nodes.Host(to) : nodes.Gpu(to, 0);
  options.route = route;
  return tools::BenchPair::Open(options);
}

// One after the other of all that is left, until somebody ends it: with which error, and when.
struct Ending {
  absl::Status status;
  int64_t at = 0;  // CLOCK_MONOTONIC, ns
};
std::future<Ending> StreamUntilEnded(tools::BenchPair& pair, uint64_t bytes) {
  return std::async(std::launch::async, [&pair, bytes] {
    Ending ending;
    ending.status = pair.Stream(kEndless, bytes, 1, 2).status();
    ending.at = tools::MonotonicNanoseconds();
    return ending;
  });
}
absl::StatusOr<absl::Duration> TimeToEnding(std::future<Ending> stream, int64_t since) {
  const Ending ending = stream.get();
  if (!ending.status.ok()) return absl::Nanoseconds(ending.at - since);
  return Error(absl::StatusCode::kInternal, Reason::kInternal,
               "a stream went well whose communicator was ended");
}

// Bytes, openings, aborts, and what is left of these for a client that comes back.
absl::Status MeasureLife(const GpuSettings& settings, const GpuDriver& driver, Report& report) {
  ASSIGN_OR_RETURN(const Nodes nodes,
                   Nodes::Start(settings.ferryd, UcxOver::kSharedMemory, {{0}, {1}}));
  ASSIGN_OR_RETURN(CommControl comms, CommControl::Open(nodes, 2));
  const auto low = static_cast<uint64_t>(nodes.Gpu(0, 0));
  const auto high = static_cast<uint64_t>(nodes.Gpu(1, 0));
  // The contexts and the link, which others need as well.
  ASSIGN_OR_RETURN(tools::BenchPair mapped, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_MAPPED));
  RETURN_IF_ERROR(mapped.MakeArenas(kFirst).status());
  RETURN_IF_ERROR(mapped.Run(1, kFirst).status());

  std::vector<absl::Duration> openings, aborts, busy_aborts, told, back;
  std::vector<double> sizes;  // MiB; the first one's has what NCCL takes once, too
  double went = 0;            // all that did with the first
  constexpr double kMiB = 1 << 20;
  for (int round = 0; round < settings.rounds + 1; ++round) {
    const uint64_t before = driver.FreeBytes(kDestinationGpu);
    RETURN_IF_ERROR(comms.Warm(low, high));
    ASSIGN_OR_RETURN(const CommControl::Opened opened, comms.WhatOpeningTook());
    openings.push_back(opened.took);
    sizes.push_back(static_cast<double>(opened.bytes) / kMiB);
    if (round == 0) {
      const uint64_t after = driver.FreeBytes(kDestinationGpu);
      went = (static_cast<double>(before) - static_cast<double>(after)) / kMiB;
    }
    const int64_t start = tools::MonotonicNanoseconds();
    RETURN_IF_ERROR(comms.Abort(low, high));
    aborts.push_back(Since(start));
  }
  for (int round = 0; round < settings.rounds; ++round) {
    ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_NCCL));
    RETURN_IF_ERROR(pair.MakeArenas(settings.large).status());
    std::future<Ending> stream = StreamUntilEnded(pair, settings.large);
    int64_t start = 0;
    absl::Duration took;
    do {  // one between two groups ends no transfer
      RETURN_IF_ERROR(comms.AwaitRunning(0));
      start = tools::MonotonicNanoseconds();
      RETURN_IF_ERROR(comms.Abort(low, high));
      took = Since(start);
    } while (stream.wait_for(std::chrono::seconds(1)) != std::future_status::ready);
    busy_aborts.push_back(took);
    ASSIGN_OR_RETURN(told.emplace_back(), TimeToEnding(std::move(stream), start));
  }
  RETURN_IF_ERROR(comms.Warm(low, high));
  for (int round = 0; round < settings.rounds; ++round) {
    ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_NCCL));
    RETURN_IF_ERROR(pair.MakeArenas(kFirst).status());
    ASSIGN_OR_RETURN(back.emplace_back(), pair.CheckFirst([&] { return pair.Run(1, kFirst); }));
  }
  Add(report, "device memory of a daemon's first communicator", "MiB", sizes[0]);
  Add(report, "device memory of staging and tables, and what else came with the first", "MiB",
      went - sizes[0]);
  sizes.erase(sizes.begin());
  Add(report, "device memory of a later communicator", "MiB", tools::Median(sizes));
  Add(report, "a daemon's first communicator opened", "ms", Milliseconds(openings[0]));
  openings.erase(openings.begin());
  Add(report, "a later one opened", "ms", Milliseconds(tools::Median(openings)));
  Add(report, "an idle one aborted at both ends", "ms", Milliseconds(tools::Median(aborts)));
  Add(report, "one with groups under way aborted at both ends", "ms",
      Milliseconds(tools::Median(busy_aborts)));
  Add(report, "of it status at the sender", "ms", Milliseconds(tools::Median(told)));
  const double first = Milliseconds(tools::Median(back));
  Add(report, "restarted client: its first transfer on a warm clique", "ms", first, 5);
  if (settings.peers.torch_first) {
    Add(report, "restarted client: its first transfer on a warm clique", "ms", first, {},
        "torch init_process_group and first send", settings.peers.torch_first);
  }
  return absl::OkStatus();
}

// Whether NCCL should be told of arenas.
absl::Status MeasureRegistration(const GpuSettings& settings, const GpuDriver& driver,
                                 Report& report) {
  const auto took = MeasureRegistered(driver, settings.self, settings.large, settings.rounds);
  if (absl::IsUnavailable(took.status())) {
    std::fprintf(stderr, "not measured: registered memory: %s\n",
                 std::string(took.status().message()).c_str());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(took.status());
  const auto rate = [&](absl::Duration time) {
    return tools::GigabytesPerSecond(settings.large, time);
  };
  Row row;
  row.name = tools::HumanSize(settings.large) + " by ncclSend, ncclRecv after ncclCommRegister";
  row.unit = "GB/s";
  row.warm = rate(took->registered);
  row.peer = "the same without";
  row.peer_warm = rate(took->plain);
  report.Add(std::move(row));
  return absl::OkStatus();
}

struct Loss {
  absl::Duration told, freed, back;
};

// The second node's daemon is killed under a group, and comes back.
absl::StatusOr<Loss> KillUnderGroup(const GpuSettings& settings, Nodes& nodes) {
  Loss loss;
  ASSIGN_OR_RETURN(CommControl comms, CommControl::Open(nodes, 1));
  {
    ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_NCCL));
    ASSIGN_OR_RETURN(tools::BenchPair beside, OpenPair(settings, nodes, 0, 0, FERRY_ROUTE_LOCAL));
    RETURN_IF_ERROR(pair.MakeArenas(settings.large).status());
    RETURN_IF_ERROR(beside.MakeArenas(kBeside).status());
    RETURN_IF_ERROR(beside.Run(1, kBeside).status());
    RETURN_IF_ERROR(pair.Run(1, settings.large).status());
    std::future<Ending> stream = StreamUntilEnded(pair, settings.large);
    RETURN_IF_ERROR(comms.AwaitRunning(0));
    ASSIGN_OR_RETURN(const uint32_t attempt, comms.Attempt(0));
    const int64_t killed = tools::MonotonicNanoseconds();
    kill(nodes.pid(1), SIGKILL);
    RETURN_IF_ERROR(comms.AwaitGone(0, attempt));
    RETURN_IF_ERROR(beside.Run(1, kBeside).status());  // of the same GPU
    loss.freed = Since(killed);
    ASSIGN_OR_RETURN(loss.told, TimeToEnding(std::move(stream), killed));
  }
  RETURN_IF_ERROR(nodes.Restart(1));
  RETURN_IF_ERROR(nodes.AwaitServing(1));
  ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair(settings, nodes, 0, 1, FERRY_ROUTE_NCCL));
  RETURN_IF_ERROR(pair.MakeArenas(kFirst).status());
  ASSIGN_OR_RETURN(loss.back, pair.CheckFirst([&] { return pair.Run(1, kFirst); }));
  return loss;
}

absl::Status MeasureLoss(const GpuSettings& settings, Report& report) {
  ASSIGN_OR_RETURN(Nodes nodes, Nodes::Start(settings.ferryd, UcxOver::kSharedMemory, {{0}, {1}}));
  std::vector<absl::Duration> told, freed, back;
  for (int round = 0; round < settings.rounds; ++round) {
    ASSIGN_OR_RETURN(const Loss loss, KillUnderGroup(settings, nodes));
    told.push_back(loss.told);
    freed.push_back(loss.freed);
    back.push_back(loss.back);
  }
  const std::string killed = "peer daemon killed under a group: ";
  Add(report, killed + "status at the survivor", "ms", Milliseconds(tools::Median(told)), 100);
  Add(report, killed + "the survivor's lane free again", "ms", Milliseconds(tools::Median(freed)),
      700);
  Add(report, killed + "the first transfer once it is back", "ms",
      Milliseconds(tools::Median(back)), 1500);
  return absl::OkStatus();
}

// All of them at once, each `count` times.
absl::StatusOr<absl::Duration> StreamAll(std::vector<tools::BenchPair>& pairs, uint64_t count,
                                         uint64_t bytes) {
  const int64_t start = tools::MonotonicNanoseconds();
  std::vector<std::future<absl::Status>> streams;
  for (tools::BenchPair& pair : pairs) {
    streams.push_back(std::async(std::launch::async, [&pair, count, bytes] {
      return pair.Stream(count, bytes, 1, 2).status();
    }));
  }
  absl::Status status;
  for (std::future<absl::Status>& stream : streams) status.Update(stream.get());
  RETURN_IF_ERROR(status);
  return Since(start);
}

struct Crossed {
  double rate = 0;          // GB/s, all together
  uint64_t comm_bytes = 0;  // of one, the smallest: what one takes that is opened again
  int fewest = 0;           // communicators that a node had at the end
};

absl::Status LookAtComms(const Nodes& nodes, Crossed& crossed) {
  ASSIGN_OR_RETURN(CommControl comms, CommControl::Open(nodes, kCliqueGpus));
  crossed.fewest = kCliqueGpus;
  for (int node = 0; node < kCliqueGpus; ++node) {
    ASSIGN_OR_RETURN(const admin::v1::ListCommsResponse all, comms.List(node));
    int open = 0;
    for (const admin::v1::Comm& comm : all.comms()) {
      if (comm.state() != "open") continue;
      ++open;
      if (comm.bytes() == 0) continue;  // not known
      crossed.comm_bytes =
          crossed.comm_bytes == 0 ? comm.bytes() : std::min(crossed.comm_bytes, comm.bytes());
    }
    crossed.fewest = std::min(crossed.fewest, open);
  }
  return absl::OkStatus();
}

// From every one of four GPUs to every other one. `count` 0: as many as take some seconds, which it
// then is.
absl::StatusOr<Crossed> MeasureCrossed(const GpuSettings& settings, const std::string& limits,
                                       uint64_t& count) {
  constexpr double kSeconds = 4;  // long beside a turn that a communicator has
  constexpr uint64_t kSome = 16;
  const uint64_t bytes = std::min(settings.large, uint64_t{256} << 20);
  Nodes::Gpus gpus;
  for (int gpu = 0; gpu < kCliqueGpus; ++gpu) gpus.push_back({gpu});
  ASSIGN_OR_RETURN(const Nodes nodes,
                   Nodes::Start(settings.ferryd, UcxOver::kSharedMemory, gpus, limits));
  std::vector<tools::BenchPair> pairs;
  for (int from = 0; from < kCliqueGpus; ++from) {
    for (int to = 0; to < kCliqueGpus; ++to) {
      if (from == to) continue;
      ASSIGN_OR_RETURN(tools::BenchPair pair,
                       OpenPair(settings, nodes, from, to, FERRY_ROUTE_NCCL));
      RETURN_IF_ERROR(pair.MakeArenas(bytes).status());
      pairs.push_back(std::move(pair));
    }
  }
  RETURN_IF_ERROR(StreamAll(pairs, 1, bytes).status());  // all are opened once
  if (count == 0) {
    ASSIGN_OR_RETURN(const absl::Duration some, StreamAll(pairs, kSome, bytes));
    count = kSome * static_cast<uint64_t>(1 + kSeconds / absl::ToDoubleSeconds(some));
  }
  ASSIGN_OR_RETURN(const absl::Duration took, StreamAll(pairs, count, bytes));
  std::vector<tools::BenchPair*> all;
  for (tools::BenchPair& pair : pairs) all.push_back(&pair);
  const auto some = [&] { return StreamAll(pairs, kSome, bytes); };
  RETURN_IF_ERROR(tools::BenchPair::CheckAll(all, some).status());
  Crossed crossed;
  crossed.rate = tools::GigabytesPerSecond(pairs.size() * count * bytes, took);
  RETURN_IF_ERROR(LookAtComms(nodes, crossed));
  return crossed;
}

absl::Status MeasureCliques(const GpuSettings& settings, const GpuDriver& driver, Report& report) {
  if (driver.devices() < kCliqueGpus) {
    std::fprintf(stderr,
                 "not measured: crossed pairs of four daemons: it takes %d GPUs, there are %d\n",
                 kCliqueGpus, driver.devices());
    return absl::OkStatus();
  }
  uint64_t count = 0;
  // More than three take: 2 GiB, the default, may be too little for them.
  ASSIGN_OR_RETURN(const Crossed all,
                   MeasureCrossed(settings, ", comm_bytes_per_gpu: 64GiB", count));
  if (all.fewest < kCliqueGpus - 1) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal,
                 absl::StrCat("only ", all.fewest, " communicators are open at a node that has ",
                              kCliqueGpus - 1, " peers and room for them"));
  }
  const std::string limits =
      absl::StrCat(", comm_bytes_per_gpu: ", std::max<uint64_t>(all.comm_bytes * 5 / 2, 1), "B");
  ASSIGN_OR_RETURN(const Crossed two, MeasureCrossed(settings, limits, count));
  Row row;
  row.name = "12 streams of four GPUs, room for two communicators of three nccl";
  row.unit = "GB/s";
  row.warm = two.rate;
  row.peer = "all cached";
  row.peer_warm = all.rate;
  row.target = 0.5;
  report.Add(std::move(row));
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureComms(const GpuSettings& settings, const GpuDriver& driver,
                          absl::string_view name, Report& report) {
  if (name == "comms") {
    RETURN_IF_ERROR(MeasureLife(settings, driver, report));
    return MeasureRegistration(settings, driver, report);
  }
  if (name == "loss") return MeasureLoss(settings, report);
  return MeasureCliques(settings, driver, report);
}

}  // namespace ferry::bench
