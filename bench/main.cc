// SPDX-License-Identifier: Apache-2.0
// ferry_bench: starts two daemons, measures every case of the speed table, prints it. Exit status:
// 0 all targets met, 1 it could not measure, 2 usage, 8 some target missed. Also is the processes
// at the other ends.
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <fstream>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "bench/cases.h"
#include "bench/echo.h"
#include "bench/futex_echo.h"
#include "bench/limited_loopback.h"
#include "tools/ferryctl/bench_receiver.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/format.h"

namespace ferry::bench {

namespace {

const std::vector<std::string> kCases = {"copies",   "blocks",   "tcp",   "ucx-shm", "ucx-tcp",
                                         "latency",  "prepared", "jobs",  "rate",    "posted",
                                         "fairness", "files",    "crowd", "loss",    "limited"};

std::string MachineLine() {
  std::string model = "unknown processor";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      model = line.substr(colon + 2);
      break;
    }
  }
  const uint64_t memory =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  utsname system{};
  uname(&system);
  return absl::StrCat(model, ", ", std::thread::hardware_concurrency(), " cores, ",
                      tools::HumanSize(memory), ", ", system.sysname, " ", system.release);
}

absl::Status Measure(const Settings& settings, const std::set<std::string>& wanted,
                     Report& report) {
  const auto run = [&](const char* name) {
    if (wanted.count(name) == 0) return false;
    std::fprintf(stderr, "measuring %s\n", name);
    return true;
  };
  {
    ASSIGN_OR_RETURN(Nodes nodes, Nodes::Start(settings.ferryd, UcxOver::kSharedMemory));
    if (run("copies")) RETURN_IF_ERROR(MeasureCopies(settings, nodes, report));
    if (run("blocks")) RETURN_IF_ERROR(MeasureBlocks(settings, nodes, report));
    if (run("ucx-shm"))
      RETURN_IF_ERROR(MeasureUcx(settings, nodes, UcxOver::kSharedMemory, report));
    if (run("latency")) RETURN_IF_ERROR(MeasureLatency(settings, nodes, report));
    if (run("prepared")) RETURN_IF_ERROR(MeasurePrepared(settings, nodes, report));
    if (run("jobs")) RETURN_IF_ERROR(MeasureJobs(settings, nodes, report));
    if (run("rate")) RETURN_IF_ERROR(MeasureRate(settings, nodes, report));
    if (run("fairness")) RETURN_IF_ERROR(MeasureFairness(settings, nodes, report));
    if (run("files")) RETURN_IF_ERROR(MeasureFiles(settings, nodes, report));
  }
  if (run("tcp")) {
    ASSIGN_OR_RETURN(Nodes nodes, Nodes::Start(settings.ferryd, UcxOver::kTcp));
    RETURN_IF_ERROR(MeasureTcp(settings, nodes, report));
  }
  if (run("ucx-tcp")) {
    ASSIGN_OR_RETURN(Nodes nodes, Nodes::Start(settings.ferryd, UcxOver::kTcp));
    RETURN_IF_ERROR(MeasureUcx(settings, nodes, UcxOver::kTcp, report));
  }
  if (run("posted")) {  // fresh daemons: memory is measured
    ASSIGN_OR_RETURN(Nodes nodes, Nodes::Start(settings.ferryd, UcxOver::kSharedMemory));
    RETURN_IF_ERROR(MeasurePosted(settings, nodes, report));
  }
  if (run("crowd")) {
    ASSIGN_OR_RETURN(Nodes empty, Nodes::Start(settings.ferryd, UcxOver::kSharedMemory));
    ASSIGN_OR_RETURN(Nodes crowded, Nodes::Start(settings.ferryd, UcxOver::kSharedMemory));
    RETURN_IF_ERROR(MeasureCrowd(settings, empty, crowded, report));
  }
  if (run("loss")) {
    ASSIGN_OR_RETURN(Nodes nodes, Nodes::Start(settings.ferryd, UcxOver::kSharedMemory));
    RETURN_IF_ERROR(MeasureLoss(settings, nodes, report));
  }
  if (run("limited")) {
    const auto link = LimitedLoopback::Enter("8gbit");
    if (link.status().code() == absl::StatusCode::kUnimplemented) {
      std::fprintf(stderr, "not measured: %s\n", std::string(link.status().message()).c_str());
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(link.status());
    ASSIGN_OR_RETURN(Nodes nodes, Nodes::Start(settings.ferryd, UcxOver::kTcp));
    RETURN_IF_ERROR(MeasureLimited(settings, nodes, report));
  }
  return absl::OkStatus();
}

int Run(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "bench-receiver") return tools::RunBenchReceiver(3);
  if (argc == 3 && std::string(argv[1]) == "futex-echo") return RunFutexEcho(3, argv[2]);
  if (argc == 3 && std::string(argv[1]) == "echo-server") return RunEchoServer(argv[2]);

  // A thousand sessions in one process.
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);

  Settings settings;
  settings.self = "/proc/self/exe";
  const std::string program = argv[0];
  const size_t slash = program.find_last_of('/');
  const std::string beside = slash == std::string::npos ? "" : program.substr(0, slash + 1);
  settings.ferryd = beside + "ferryd";
  settings.ferryctl = beside + "ferryctl";
  std::string json;
  std::vector<std::string> cases = kCases;
  CLI::App app("Measures Ferry against what the machine can do.", "ferry_bench");
  app.add_option("--ferryd", settings.ferryd, "The daemon's program (the one beside this)")
      ->check(CLI::ExistingFile);
  app.add_option("--ferryctl", settings.ferryctl, "The tool's program (the one beside this)")
      ->check(CLI::ExistingFile);
  app.add_option("--rounds", settings.rounds, "Alternations of each case (5)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--cases", cases, absl::StrCat("Some of ", absl::StrJoin(kCases, ", ")))
      ->check(CLI::IsMember(kCases))
      ->delimiter(',');
  app.add_option("--json", json, "Also write the table to this file, for programs");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // CLI11 reports by exception, also for --help
    return app.exit(error) == 0 ? 0 : 2;
  }

  const std::string command = absl::StrJoin(std::vector<std::string>(argv, argv + argc), " ");
  const std::string machine = MachineLine();
  std::printf("command: %s\nmachine: %s\n", command.c_str(), machine.c_str());
  std::printf(
      "medians of %d alternations (of files the best of them); cold: with the making and first "
      "touch of the destination\n\n",
      settings.rounds);
  Report report;
  const absl::Status status = Measure(settings, {cases.begin(), cases.end()}, report);
  std::printf("%s", report.ToTable().c_str());
  if (!json.empty()) std::ofstream(json) << report.ToJson(command, machine) << "\n";
  if (!status.ok()) {
    std::fprintf(stderr, "ferry_bench: %s\n", tools::DescribeFailure(status, false).c_str());
    return 1;
  }
  for (const Row& row : report.rows()) {
    if (!row.passed()) return 8;
  }
  return 0;
}

}  // namespace
}  // namespace ferry::bench

int main(int argc, char** argv) { return ferry::bench::Run(argc, argv); }
