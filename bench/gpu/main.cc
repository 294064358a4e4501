// SPDX-License-Identifier: Apache-2.0
// ferry_gpu_bench: starts two daemons with GPUs, measures what `local` and `mapped` do between two
// of them beside the driver's own copy, prints the table. Exit status: 0 all targets met, 1 it
// could not measure, 2 usage, 8 some target missed, 77 there are no two GPUs. Also is the processes
// at the other ends.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "bench/cases.h"
#include "ferry/cuda.hpp"
#include "tests/gpu/driver/gpu_driver.h"
#include "tools/ferryctl/bench_receiver.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

using ::ferry::testing::GpuDriver;

constexpr int kNoGpus = 77;

struct GpuSettings {
  std::string self = "/proc/self/exe";
  std::string ferryd;
  int rounds = 5;
  uint64_t large = uint64_t{1} << 30;
  uint64_t pings = 2000;
};

absl::Status FromCuda(const GpuDriver& driver, CUresult result, const char* doing) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, Reason::kInternal,
               absl::StrCat(doing, ": ", driver.Name(result)));
}

// Two buffers of one process and the driver's copy between them.
class PeerCopy {
 public:
  PeerCopy(const GpuDriver* driver, uint64_t bytes) : driver_(driver), bytes_(bytes) {}
  ~PeerCopy() {
    for (int i = 0; i < 2; ++i) {
      driver_->cuCtxSetCurrent(driver_->context(i));
      if (stream_[i] != nullptr) driver_->cuStreamDestroy(stream_[i]);
      if (memory_[i] != 0) driver_->cuMemFree(memory_[i]);
    }
  }
  PeerCopy(const PeerCopy&) = delete;
  PeerCopy& operator=(const PeerCopy&) = delete;

  absl::Status Make() {
    for (int i = 0; i < 2; ++i) {
      driver_->cuCtxSetCurrent(driver_->context(i));
      RETURN_IF_ERROR(FromCuda(*driver_, driver_->cuMemAlloc(&memory_[i], 2 * bytes_), "allocate"));
      RETURN_IF_ERROR(FromCuda(
          *driver_, driver_->cuStreamCreate(&stream_[i], CU_STREAM_NON_BLOCKING), "make a stream"));
    }
    return absl::OkStatus();
  }
  // From device 0 to 1, or both ways at once.
  absl::StatusOr<absl::Duration> Copy(bool both) {
    const int64_t start = tools::MonotonicNanoseconds();
    for (int from = 0; from < (both ? 2 : 1); ++from) {
      const int to = 1 - from;
      driver_->cuCtxSetCurrent(driver_->context(from));
      RETURN_IF_ERROR(FromCuda(
          *driver_,
          driver_->cuMemcpyPeerAsync(memory_[to] + (from == 0 ? bytes_ : 0), driver_->context(to),
                                     memory_[from] + (from == 0 ? 0 : bytes_),
                                     driver_->context(from), bytes_, stream_[from]),
          "copy from GPU to GPU"));
    }
    for (int from = 0; from < (both ? 2 : 1); ++from) {
      driver_->cuCtxSetCurrent(driver_->context(from));
      RETURN_IF_ERROR(
          FromCuda(*driver_, driver_->cuStreamSynchronize(stream_[from]), "await the copy"));
    }
    return absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
  }

 private:
  const GpuDriver* const driver_;
  const uint64_t bytes_;
  CUdeviceptr memory_[2] = {};
  CUstream stream_[2] = {};
};

class GpuBench {
 public:
  GpuBench(const GpuSettings& settings, const GpuDriver* driver, const Nodes& nodes, int route)
      : settings_(settings), driver_(driver), nodes_(nodes), route_(route) {}

  absl::Status Run(Report& report) {
    RETURN_IF_ERROR(Large(report));
    RETURN_IF_ERROR(Latency(report));
    RETURN_IF_ERROR(StreamToStream(report));
    RETURN_IF_ERROR(Many(report, 1000, 64 << 10, 0.25));
    return Many(report, 10'000, 4 << 10, 0.3);
  }

 private:
  bool local() const { return route_ == FERRY_ROUTE_LOCAL; }
  int there() const { return local() ? 0 : 1; }
  std::string Named(absl::string_view what) const {
    return absl::StrCat(what, " ", tools::RouteText(route_));
  }

  absl::StatusOr<tools::BenchPair> OpenPair(bool back = false) const {
    tools::BenchPairOptions options;
    options.receiver_command = {settings_.self, "bench-receiver"};
    options.client_dir = nodes_.ClientDir(back ? there() : 0);
    options.peer_client_dir = nodes_.ClientDir(back ? 0 : there());
    const int64_t first = nodes_.Gpu(0, 0);
    const int64_t second = nodes_.Gpu(there(), local() ? 1 : 0);
    options.source = back ? second : first;
    options.destination = back ? first : second;
    options.route = route_;
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

  absl::Status Large(Report& report) {
    const uint64_t bytes = settings_.large;
    PeerCopy peer(driver_, bytes);
    RETURN_IF_ERROR(peer.Make());
    ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair());
    ASSIGN_OR_RETURN(tools::BenchPair back, OpenPair(true));
    RETURN_IF_ERROR(pair.MakeArenas(bytes).status());
    RETURN_IF_ERROR(back.MakeArenas(bytes).status());
    std::vector<double> one, both, peer_one, peer_both;
    for (int round = 0; round < settings_.rounds + 1; ++round) {
      ASSIGN_OR_RETURN(const absl::Duration copied, peer.Copy(false));
      ASSIGN_OR_RETURN(const absl::Duration moved, pair.Run(1, bytes));
      ASSIGN_OR_RETURN(const absl::Duration copied_both, peer.Copy(true));
      absl::StatusOr<absl::Duration> backwards;
      const int64_t start = tools::MonotonicNanoseconds();
      std::thread other([&] { backwards = back.Run(1, bytes); });
      const absl::StatusOr<absl::Duration> forwards = pair.Run(1, bytes);
      other.join();
      const absl::Duration took = absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
      RETURN_IF_ERROR(forwards.status());
      RETURN_IF_ERROR(backwards.status());
      if (round == 0) continue;  // links and contexts wake up
      one.push_back(tools::GigabytesPerSecond(bytes, moved));
      both.push_back(tools::GigabytesPerSecond(2 * bytes, took));
      peer_one.push_back(tools::GigabytesPerSecond(bytes, copied));
      peer_both.push_back(tools::GigabytesPerSecond(2 * bytes, copied_both));
    }
    RETURN_IF_ERROR(pair.Compare(bytes));
    RETURN_IF_ERROR(back.Compare(bytes));
    const std::string size = tools::HumanSize(bytes);
    Add(report, Named(size), "GB/s", tools::Median(one), false, local() ? 0.99 : 0.985,
        "cuMemcpyPeerAsync", tools::Median(peer_one));
    Add(report, Named(size + " both ways"), "GB/s", tools::Median(both), false, 0.95,
        "cuMemcpyPeerAsync both ways", tools::Median(peer_both));
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
    Add(report, Named("8 B prepared, p99"), "us",
        absl::ToDoubleMicroseconds(tools::Quantile(pings, 0.99)), true, {});
    std::vector<absl::Duration> posted;
    for (uint64_t i = 0; i < settings_.pings / 4 + 10; ++i) {
      ASSIGN_OR_RETURN(const absl::Duration took, pair.Run(1, 8));
      if (i >= 10) posted.push_back(took);
    }
    Add(report, Named("8 B posted, p50"), "us", absl::ToDoubleMicroseconds(tools::Median(posted)),
        true, local() ? 150 : 220);
    return absl::OkStatus();
  }

  // A store by one stream of this process until another one of it, behind the wait, is done.
  absl::Status StreamToStream(Report& report) {
    SessionOptions options;
    options.client_dir = nodes_.ClientDir(0);
    Result<Session> source = Session::Open(options);
    options.client_dir = nodes_.ClientDir(there());
    Result<Session> destination = Session::Open(options);
    const auto good = [](const Status& status) {
      return status.ok() ? absl::OkStatus()
                         : Error(absl::StatusCode::kInternal, Reason::kInternal, status.ToString());
    };
    RETURN_IF_ERROR(good(source.status()));
    RETURN_IF_ERROR(good(destination.status()));
    const auto from = static_cast<uint64_t>(nodes_.Gpu(0, 0));
    const auto to = static_cast<uint64_t>(nodes_.Gpu(there(), local() ? 1 : 0));
    Result<Arena> sent = source->CreateArena(from, 8);
    Result<Arena> received = destination->CreateArena(to, 8);
    RETURN_IF_ERROR(good(sent.status()));
    RETURN_IF_ERROR(good(received.status()));
    PostOptions post;
    post.route = route_;
    Result<Prepared> receive =
        destination->PrepareReceive(to, {Transfer(from, "stream", {received->All()})}, post);
    Result<Prepared> send =
        source->PrepareSend(from, {Transfer(to, "stream", {sent->All()})}, post);
    RETURN_IF_ERROR(good(receive.status()));
    RETURN_IF_ERROR(good(send.status()));
    CUstream streams[2];
    const int devices[] = {cuda::Device(*sent), cuda::Device(*received)};
    for (int i = 0; i < 2; ++i) {
      driver_->cuCtxSetCurrent(driver_->context(devices[i]));
      RETURN_IF_ERROR(FromCuda(
          *driver_, driver_->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "make a stream"));
    }
    std::vector<absl::Duration> took;
    for (uint64_t i = 0; i < settings_.pings / 4 + 10; ++i) {
      uint64_t firing = 0;
      RETURN_IF_ERROR(good(receive->Fire(&firing)));
      RETURN_IF_ERROR(good(cuda::Wait(*receive, streams[1], firing)));
      const int64_t start = tools::MonotonicNanoseconds();
      RETURN_IF_ERROR(good(cuda::Fire(*send, streams[0])));
      RETURN_IF_ERROR(FromCuda(*driver_, driver_->cuStreamSynchronize(streams[1]), "await"));
      if (i >= 10) took.push_back(absl::Nanoseconds(tools::MonotonicNanoseconds() - start));
      RETURN_IF_ERROR(good(send->Wait()));
    }
    for (int i = 0; i < 2; ++i) {
      driver_->cuCtxSetCurrent(driver_->context(devices[i]));
      driver_->cuStreamSynchronize(streams[i]);
      driver_->cuStreamDestroy(streams[i]);
    }
    Add(report, Named("8 B prepared, stream to stream, p50"), "us",
        absl::ToDoubleMicroseconds(tools::Median(took)), true, 35);
    return absl::OkStatus();
  }

  absl::Status Many(Report& report, uint64_t count, uint64_t bytes, double target_ms) {
    ASSIGN_OR_RETURN(tools::BenchPair pair, OpenPair());
    RETURN_IF_ERROR(pair.MakeArenas(count * bytes).status());
    const std::string what = absl::StrCat(tools::HumanCount(count), " x ", tools::HumanSize(bytes));
    std::vector<absl::Duration> posted, prepared, blocks;
    RETURN_IF_ERROR(pair.Run(count, bytes).status());
    for (int round = 0; round < settings_.rounds; ++round) {
      ASSIGN_OR_RETURN(const absl::Duration took, pair.Run(count, bytes));
      posted.push_back(took);
    }
    RETURN_IF_ERROR(pair.RunBlocks(count, bytes).status());
    for (int round = 0; round < settings_.rounds; ++round) {
      ASSIGN_OR_RETURN(const absl::Duration took, pair.RunBlocks(count, bytes));
      blocks.push_back(took);
    }
    RETURN_IF_ERROR(pair.Prepare(count, bytes));
    for (int round = 0; round < 4 * settings_.rounds; ++round) {
      ASSIGN_OR_RETURN(const absl::Duration took, pair.Fire());
      prepared.push_back(took);
    }
    RETURN_IF_ERROR(pair.Compare(count * bytes));
    const auto milliseconds = [](const std::vector<absl::Duration>& all) {
      return absl::ToDoubleMilliseconds(tools::Median(all));
    };
    Add(report, Named(what + " prepared"), "ms", milliseconds(prepared), true, target_ms);
    Add(report, Named(what + " posted"), "ms", milliseconds(posted), true, {});
    Add(report, Named(what + " as one, by index table, posted"), "ms", milliseconds(blocks), true,
        {});
    return absl::OkStatus();
  }

  const GpuSettings& settings_;
  const GpuDriver* const driver_;
  const Nodes& nodes_;
  const int route_;
};

absl::Status Measure(const GpuSettings& settings, const GpuDriver* driver, Report& report) {
  {
    ASSIGN_OR_RETURN(Nodes nodes,
                     Nodes::Start(settings.ferryd, UcxOver::kSharedMemory, {{{0, 1}, {}}}));
    std::fprintf(stderr, "measuring local\n");
    RETURN_IF_ERROR(GpuBench(settings, driver, nodes, FERRY_ROUTE_LOCAL).Run(report));
  }
  ASSIGN_OR_RETURN(Nodes nodes,
                   Nodes::Start(settings.ferryd, UcxOver::kSharedMemory, {{{0}, {1}}}));
  std::fprintf(stderr, "measuring mapped\n");
  return GpuBench(settings, driver, nodes, FERRY_ROUTE_MAPPED).Run(report);
}

int Run(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "bench-receiver") return tools::RunBenchReceiver(3);
  GpuSettings settings;
  const std::string program = argv[0];
  const size_t slash = program.find_last_of('/');
  settings.ferryd =
      absl::StrCat(slash == std::string::npos ? "" : program.substr(0, slash + 1), "ferryd");
  std::string json;
  CLI::App app("Measures Ferry between two GPUs against the driver's own copy.", "ferry_gpu_bench");
  app.add_option("--ferryd", settings.ferryd, "The daemon's program (the one beside this)")
      ->check(CLI::ExistingFile);
  app.add_option("--rounds", settings.rounds, "Alternations of each case (5)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--large", settings.large, "Bytes of the large buffers (1 GiB)")
      ->check(CLI::Range(uint64_t{1} << 20, uint64_t{1} << 40));
  app.add_option("--pings", settings.pings, "Repetitions of what is short (2000)")
      ->check(CLI::Range(20, 10'000'000));
  app.add_option("--json", json, "Also write the table to this file, for programs");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // CLI11 reports by exception, also for --help
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::string missing;
  const GpuDriver* const driver = GpuDriver::Get(&missing);
  if (driver == nullptr || driver->devices() < 2) {
    std::fprintf(stderr, "ferry_gpu_bench: SKIPPED: it takes two GPUs; %s\n",
                 driver == nullptr ? missing.c_str() : "there is one");
    return kNoGpus;
  }
  const std::string command = absl::StrJoin(std::vector<std::string>(argv, argv + argc), " ");
  const std::string machine = absl::StrCat(driver->devices(), " x ", driver->device_name(0));
  std::printf("command: %s\nmachine: %s\nmedians of %d alternations\n\n", command.c_str(),
              machine.c_str(), settings.rounds);
  Report report;
  const absl::Status status = Measure(settings, driver, report);
  std::printf("%s", report.ToTable().c_str());
  if (!json.empty()) std::ofstream(json) << report.ToJson(command, machine) << "\n";
  if (!status.ok()) {
    std::fprintf(stderr, "ferry_gpu_bench: %s\n", tools::DescribeFailure(status, false).c_str());
    return 1;
  }
  const bool passed = std::all_of(report.rows().begin(), report.rows().end(),
                                  [](const Row& row) { return row.passed(); });
  return passed ? 0 : 8;
}

}  // namespace
}  // namespace ferry::bench

int main(int argc, char** argv) { return ferry::bench::Run(argc, argv); }
