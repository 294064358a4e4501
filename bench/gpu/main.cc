// SPDX-License-Identifier: Apache-2.0
// ferry_gpu_bench: starts two daemons with GPUs, measures what `local` and `mapped` do between two
// of them beside the driver's own copy, `tcp` and `ucx` over TCP beside themselves between host
// devices and `nccl` beside NCCL, prints the table. `--cases programs,jobs` takes one GPU. Exit
// status: 0 all targets met, 1 it could not measure, 2 usage, 8 some target missed, 77 there are
// too few GPUs. Also is the processes at the other ends.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "bench/echo.h"
#include "bench/gpu/bare_program.h"
#include "bench/gpu/case_comms.h"
#include "bench/gpu/case_fused.h"
#include "bench/gpu/case_job_calls.h"
#include "bench/gpu/case_products.h"
#include "bench/gpu/case_programs.h"
#include "bench/gpu/case_watch.h"
#include "bench/gpu/cases.h"
#include "bench/gpu/first_transfer.h"
#include "bench/gpu/nccl_register.h"
#include "bench/gpu/peer_copy.h"
#include "tests/gpu/driver/gpu_driver.h"
#include "tools/ferryctl/bench_receiver.h"
#include "tools/ferryctl/failure.h"

namespace ferry::bench {
namespace {

using ::ferry::testing::GpuDriver;

constexpr int kNoGpus = 77;

// The cases within one GPU, which are all that a host of one GPU can measure.
constexpr absl::string_view kWithinOne[] = {"programs", "jobs"};

int GpusNeeded(const std::vector<std::string>& cases) {
  const auto within = [](const std::string& name) {
    return absl::c_linear_search(kWithinOne, name);
  };
  return absl::c_all_of(cases, within) ? 1 : 2;
}

absl::Status MeasureWithin(const GpuSettings& settings, const GpuDriver& driver, Nodes& nodes,
                           Report& report) {
  if (absl::c_linear_search(settings.cases, "programs")) {
    const CaseWatch watch("programs");
    RETURN_IF_ERROR(MeasurePrograms(driver, nodes, settings.rounds, report));
    RETURN_IF_ERROR(MeasureProducts(driver, nodes, settings.rounds, report));
  }
  if (!absl::c_linear_search(settings.cases, "jobs")) return absl::OkStatus();
  const CaseWatch watch("jobs");
  return MeasureJobCalls(settings.self, nodes, report);
}

absl::Status Measure(GpuSettings settings, const GpuDriver* driver, Report& report) {
  if (driver->devices() == 1) {
    ASSIGN_OR_RETURN(Nodes nodes, Nodes::Start(settings.ferryd, UcxOver::kSharedMemory, {{0}, {}}));
    return MeasureWithin(settings, *driver, nodes, report);
  }
  if (absl::c_count(settings.cases, "peers") > 0) {
    std::fprintf(stderr, "measuring UCX, NIXL, PyTorch and JAX, where they are installed\n");
    const auto routes = [&](const char* name) { return absl::c_count(settings.routes, name) > 0; };
    settings.peers =
        MeasureGpuPeers(settings.large, routes("local") || routes("mapped"), routes("nccl"));
  }
  const struct {
    const char* name;
    int route;
    UcxOver ucx;
    Nodes::Gpus gpus;
  } kRoutes[] = {
      {"local", FERRY_ROUTE_LOCAL, UcxOver::kSharedMemory, {{0, 1}, {}}},
      {"mapped", FERRY_ROUTE_MAPPED, UcxOver::kSharedMemory, {{0}, {1}}},
      {"tcp", FERRY_ROUTE_TCP, UcxOver::kSharedMemory, {{0}, {1}}},
      {"ucx", FERRY_ROUTE_UCX, UcxOver::kTcp, {{0}, {1}}},
      {"nccl", FERRY_ROUTE_NCCL, UcxOver::kSharedMemory, {{0}, {1}}},
  };
  for (const auto& [name, route, ucx, gpus] : kRoutes) {
    if (absl::c_count(settings.routes, name) == 0) continue;
    settings.free_before = driver->FreeBytes(kDestinationGpu);
    ASSIGN_OR_RETURN(Nodes nodes, Nodes::Start(settings.ferryd, ucx, gpus));
    RETURN_IF_ERROR(MeasureGpus(settings, driver, nodes, route, report));
    if (route == FERRY_ROUTE_LOCAL) {
      RETURN_IF_ERROR(MeasureWithin(settings, *driver, nodes, report));
    }
    if (route != FERRY_ROUTE_MAPPED && route != FERRY_ROUTE_NCCL) continue;
    const std::pair<const char*, decltype(&MeasureFused)> kFused[] = {
        {"fused", MeasureFused}, {"fused_load", MeasureFusedUnderLoad}};
    for (const auto& [of, measure] : kFused) {
      if (!absl::c_linear_search(settings.cases, of)) continue;
      const CaseWatch watch(absl::StrCat(of, " ", name));
      RETURN_IF_ERROR(measure(*driver, nodes, route, settings.rounds, report));
    }
  }
  if (absl::c_count(settings.routes, "nccl") == 0) return absl::OkStatus();
  for (const char* const name : kCommCases) {
    if (absl::c_count(settings.cases, name) == 0) continue;
    const CaseWatch watch(absl::StrCat(name, " of communicators"));
    RETURN_IF_ERROR(MeasureComms(settings, *driver, name, report));
  }
  return absl::OkStatus();
}

int Run(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (argc == 2 && role == "bench-receiver") return tools::RunBenchReceiver(3);
  if (argc == 3 && role == "echo-server") return RunEchoServer(argv[2]);
  if (argc == 2 + kFirstTransferArguments && role == "first-transfer") {
    return RunFirstTransfer(argv + 2, 3);
  }
  if (argc == 3 && role == "bare-program") return RunBareProgram(std::atoi(argv[2]), 3);
  if (argc == 2 && role == "nccl-rank") return RunNcclRank(3);
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
  app.add_option("--cases", settings.cases,
                 absl::StrCat("Some of ", absl::StrJoin(kGpuCases, ", ")))
      ->check(CLI::IsMember(kGpuCases))
      ->delimiter(',');
  app.add_option("--routes", settings.routes,
                 absl::StrCat("Some of ", absl::StrJoin(kGpuRoutes, ", ")))
      ->check(CLI::IsMember(kGpuRoutes))
      ->delimiter(',');
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
  // Before this program has contexts of its own, which the driver counts as well.
  std::stable_partition(settings.cases.begin(), settings.cases.end(),
                        [](const std::string& name) { return name == "memory"; });
  std::string missing;
  const GpuDriver* const driver = GpuDriver::Get(&missing);
  const int needed = GpusNeeded(settings.cases);
  if (driver == nullptr || driver->devices() < needed) {
    std::fprintf(stderr,
                 "ferry_gpu_bench: SKIPPED: it takes two GPUs (--cases programs,jobs: one); %s\n",
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
