// SPDX-License-Identifier: Apache-2.0
// ferryctl program: what can be said of a program's text, and done with it, without a daemon or
// with one.
#include <errno.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/cuda/gpu_plan.h"
#include "compute/passes/passes.h"
#include "compute/plan/plan.h"
#include "compute/plan/transfers.h"
#include "compute/program/cost.h"
#include "compute/program/fingerprint.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/file_io.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/options.h"
#include "tools/ferryctl/program_bench.h"
#include "tools/ferryctl/program_device.h"
#include "tools/ferryctl/program_kernels.h"
#include "tools/ferryctl/program_list.h"
#include "tools/ferryctl/program_run.h"

namespace ferry::tools {
namespace {

using Json = nlohmann::ordered_json;

// All problems of the text in `path`, each with its place; the text itself names the first.
absl::Status Refuse(const std::string& path, const std::vector<Violation>& problems) {
  return WithViolations(
      Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
            absl::StrCat("check ", path, ": ", compute::ProblemsText(problems.size()), ": ",
                         problems[0].field, ": ", problems[0].text)),
      problems);
}

absl::Status TooLong(const std::string& path) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBatchTooLarge,
               absl::StrCat("read ", path, ": it has more than the ", compute::kMaxTextBytes,
                            " bytes that a program's text has at most"));
}

// Reads a file; `-` is stdin.
absl::StatusOr<std::string> ReadText(const std::string& path) {
  if (path == "-") {
    std::string text(compute::kMaxTextBytes + 1, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), stdin));
    if (std::ferror(stdin) != 0) return absl::ErrnoToStatus(errno, "read stdin");
    if (text.size() > compute::kMaxTextBytes) return TooLong("stdin");
    return text;
  }
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.bytes() > compute::kMaxTextBytes) {
    return TooLong(path);
  }
  std::string text(file.bytes(), '\0');
  RETURN_IF_ERROR(file.Read(0, text.data(), text.size()));
  return text;
}

absl::StatusOr<compute::Program> ReadProgram(const std::string& text, const std::string& path) {
  compute::ParsedText parsed = compute::Parse(text);
  std::vector<Violation> problems;
  for (const compute::TextProblem& problem : compute::CheckText(parsed)) {
    const std::string place = compute::PlaceText(problem);
    problems.push_back({absl::StrCat(path, place.empty() ? "" : ":", place), problem.text});
  }
  if (!problems.empty()) return Refuse(path, problems);
  return std::move(parsed.program);
}

Json StepsJson(const std::vector<compute::Step>& steps) {
  Json list = Json::array();
  for (const compute::Step& step : steps) {
    const compute::Cost cost = compute::CostOf(step);
    const auto kind = compute::kStepNames[static_cast<size_t>(step.kind)];
    Json one = {{"step", step.number},           {"kind", std::string(kind.data(), kind.size())},
                {"label", step.label},           {"after", step.after},
                {"flops", cost.flops},           {"transcendentals", cost.transcendentals},
                {"bytes_read", cost.bytes_read}, {"bytes_written", cost.bytes_written}};
    if (step.kind == compute::StepKind::kRepeat) {
      one["trips"] = step.trips;
      one["steps"] = StepsJson(step.steps);
    } else {
      one["program"] = compute::Print(step.program);
      for (const compute::Binding& binding : step.bindings) {
        one["bindings"].push_back({{binding.slot ? "slot" : "buffer", binding.index}});
      }
      if (const auto transfer = compute::TransferOf(step)) {
        if (transfer->device) one["device"] = *transfer->device;
        if (!transfer->device) one["peer"] = transfer->peer;
        one["key"] = transfer->key;
      }
    }
    list.push_back(std::move(one));
  }
  return list;
}

Json PlanJson(const compute::Plan& plan) {
  Json slots = Json::array();
  for (const compute::Slot& slot : plan.slots) {
    slots.push_back({{"type", compute::ToString(slot.type)},
                     {"label", slot.label},
                     {"offset", slot.offset},
                     {"first_step", slot.first},
                     {"last_step", slot.last}});
  }
  return {{"arena_bytes", plan.memory.bytes},   {"peak_bytes", plan.memory.peak_bytes},
          {"peak_step", plan.memory.peak_step}, {"holders", plan.memory.holders},
          {"slots", std::move(slots)},          {"steps", StepsJson(plan.steps)}};
}

class ProgramCommand : public Command {
 public:
  ProgramCommand()
      : Command("program",
                "Checks a compute program, prints or plans it, runs or times it; lists the "
                "daemon's, and releases those that are barred from GPUs") {}

  void Define(CLI::App& app) override {
    app.require_subcommand(1);
    CLI::App* check =
        app.add_subcommand("check", "Lists every problem; else its fingerprint and what it costs");
    check->callback([this] { act_ = Act::kCheck; });
    CLI::App* print = app.add_subcommand("print", "The canonical text of a good program");
    print->add_flag("--simplified", simplified_,
                    "As it is planned: folded, merged, without dead code, sums moved out of loops");
    print->callback([this] { act_ = Act::kPrint; });
    CLI::App* plan =
        app.add_subcommand("plan", "The steps of a run, and the memory that they take");
    plan->add_flag("--kernels", kernels_, "With the program of each step");
    plan->add_flag("--dot", dot_, "As a picture, for graphviz");
    plan->add_option("--gpu", gpu_, "For a GPU of this architecture, such as sm_90a");
    plan->add_flag("--source", source_, "With --gpu: the sources of its kernels");
    plan->add_flag("--compile", compile_,
                   "With --gpu: compiles its kernels, and says what they come to");
    plan->add_option("--cache", compiling_.cache,
                     "With --compile: the directory of compiled kernels that is read and filled");
    plan->add_option("--nvrtc", compiling_.nvrtc, "With --compile: the path of libnvrtc");
    plan->add_option("--device", measured_on_,
                     "With --gpu: measures it on this GPU of the daemon, and marks what is an "
                     "estimate and what was measured")
        ->check(IdFrom<uint64_t>("ferryctl devices"));
    plan->callback([this] { act_ = Act::kPlan; });
    CLI::App* run =
        app.add_subcommand("run", "Runs it over files, in this process or by the daemon");
    run->add_flag("--daemon", daemon_, "By the daemon, as a client's job");
    run->add_option("--device", by_daemon_.device,
                    "With --daemon: the daemon's device, a host's or a GPU (its first host device)")
        ->check(IdFrom<int64_t>("ferryctl devices"));
    run->add_option("--send", by_daemon_.sends,
                    "NAME=DEVICE:KEY: the daemon sends what a buffer becomes");
    run->add_option("--recv", by_daemon_.receives,
                    "NAME=DEVICE:KEY: the daemon receives a buffer before");
    run->add_option("--peer", by_daemon_.peers,
                    "NAME=DEVICE: whom the program's own sends and receives name");
    run->add_option("--key-suffix", by_daemon_.key_suffix, "What their keys end with this time");
    run->add_option("--bind", bindings_, "NAME=FILE, for each buffer: what it holds, or becomes");
    AddParsed(*run, "--deadline", by_daemon_.deadline, ParseDeadline,
              "With --daemon: how long it may take, such as 10s or 2h (the daemon's default)");
    run->add_flag("--poison", poison_,
                  "What nothing was written to is all ones, NaN or -1, instead of 0");
    run->callback([this] { act_ = Act::kRun; });
    CLI::App* bench = DefineBench(app);
    for (CLI::App* sub : {plan, bench}) {
      sub->add_option("--iterations", iterations_, "Runs that are measured")
          ->check(CLI::Range(1, 1'000'000));
    }
    for (CLI::App* sub : {run, bench}) {
      sub->add_option("--threads", threads_, "How many it may use")->check(CLI::Range(1, 1024));
    }
    CLI::App* list = app.add_subcommand("list", "The daemon's programs and jobs");
    list->callback([this] { act_ = Act::kList; });
    CLI::App* barred = app.add_subcommand(
        "barred",
        "The programs that the daemon does not run on GPUs, since a GPU was lost at them");
    barred->callback([this] { act_ = Act::kBarred; });
    CLI::App* release = app.add_subcommand("release", "Lets GPUs run barred programs again");
    release->add_option("program", released_, "Its fingerprint, or at least its first 16 digits");
    release->add_flag("--all", release_all_, "All programs that are barred");
    release->callback([this] { act_ = Act::kRelease; });
    for (CLI::App* sub : {list, barred, release}) sub->fallthrough();
    for (CLI::App* sub : {check, print, plan, run, bench}) {
      sub->add_option("file", path_, "The program's text, - for stdin")->required();
      sub->fallthrough();
    }
  }

  std::string Lacks() const override {
    return act_ == Act::kRelease && released_.empty() != release_all_
               ? "release programs: either their fingerprints or --all"
               : "";
  }

  absl::StatusOr<int> Run(const Globals& globals) override {
    RETURN_IF_ERROR(CheckFlags(globals));
    if (act_ == Act::kList || act_ == Act::kBarred || act_ == Act::kRelease) {
      ASSIGN_OR_RETURN(const std::string text, AskDaemon(globals));
      std::fwrite(text.data(), 1, text.size(), stdout);
      return kExitOk;
    }
    // Problems of the text are reported for the file, even if the daemon would find them too.
    ASSIGN_OR_RETURN(by_daemon_.text, ReadText(path_));
    ASSIGN_OR_RETURN(compute::Program program,
                     ReadProgram(by_daemon_.text, path_ == "-" ? "stdin" : path_));
    if (act_ == Act::kRun && daemon_) {
      by_daemon_.bindings = bindings_;
      RETURN_IF_ERROR(RunProgramByDaemon(globals, by_daemon_));
      return kExitOk;
    }
    if (act_ == Act::kRun) {
      RETURN_IF_ERROR(RunProgram(compute::Simplify(program), bindings_, threads(), poison_));
      return kExitOk;
    }
    if (act_ == Act::kBench) {
      ASSIGN_OR_RETURN(const std::string text, Bench(globals, compute::Simplify(program)));
      std::fwrite(text.data(), 1, text.size(), stdout);
      return kExitOk;
    }
    if (simplified_ || act_ == Act::kPlan) program = compute::Simplify(program);
    std::string text;
    if (act_ == Act::kCheck) text = Summary(program, globals.json);
    if (act_ == Act::kPrint) text = compute::Print(program);
    if (act_ == Act::kPlan && gpu_) {
      ASSIGN_OR_RETURN(text, GpuPlanText(globals, program));
    } else if (act_ == Act::kPlan) {
      ASSIGN_OR_RETURN(const compute::Plan plan, compute::MakePlan(program));
      text = dot_ ? compute::ToDot(plan)
             : globals.json
                 ? PlanJson(plan).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"
                 : compute::ToText(plan, kernels_);
    }
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kExitOk;
  }

 private:
  absl::StatusOr<std::string> AskDaemon(const Globals& globals) const {
    if (act_ == Act::kList) return ListPrograms(globals);
    if (act_ == Act::kBarred) return ListBarredPrograms(globals);
    return ReleasePrograms(globals, released_);
  }

  size_t threads() const { return threads_.value_or(1); }

  CLI::App* DefineBench(CLI::App& app) {
    CLI::App* bench = app.add_subcommand(
        "bench",
        "How long each step takes in this process, or on a device of the daemon, over memory of "
        "its own");
    bench
        ->add_option("--device", measured_on_,
                     "On this device of the daemon, a host device or a GPU, as a client's "
                     "prepared job, beside a copy on it")
        ->check(IdFrom<uint64_t>("ferryctl devices"));
    bench->callback([this] { act_ = Act::kBench; });
    return bench;
  }

  absl::StatusOr<std::string> Bench(const Globals& globals, const compute::Program& program) const {
    if (measured_on_) {
      ASSIGN_OR_RETURN(const DeviceTimes times,
                       BenchOnDevice(globals, program, *measured_on_, iterations_));
      return ToText(times, globals.json);
    }
    ASSIGN_OR_RETURN(const ProgramTimes times, BenchProgram(program, threads(), iterations_));
    return ToText(times, globals.json);
  }

  // Flags that together mean nothing, or contradict each other.
  absl::Status CheckFlags(const Globals& globals) const {
    const auto refuse = [](const char* text) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid, text);
    };
    const bool for_daemon = !by_daemon_.sends.empty() || !by_daemon_.receives.empty() ||
                            by_daemon_.device >= 0 || !by_daemon_.peers.empty() ||
                            !by_daemon_.key_suffix.empty() || by_daemon_.deadline.has_value();
    if (!daemon_ && for_daemon) {
      return refuse(
          "run a program: --deadline, --device, --send, --recv, --peer and --key-suffix are for "
          "--daemon");
    }
    if (daemon_ && (poison_ || threads_)) {
      return refuse(
          "run a program: --poison and --threads are for runs in this process; a daemon has its "
          "own threads (limits.job_threads)");
    }
    if (act_ == Act::kBench && measured_on_ && threads_) {
      return refuse(
          "time a program: --threads is for runs in this process; a daemon has its own threads "
          "(limits.job_threads)");
    }
    if ((source_ || compile_ || (act_ == Act::kPlan && measured_on_)) && !gpu_) {
      return refuse("plan a program: --source, --compile and --device are for --gpu");
    }
    if (compile_ && measured_on_) {
      return refuse("plan a program: either --compile, without a daemon, or --device");
    }
    if (source_ && compile_) return refuse("plan a program: either --source or --compile");
    if (!compile_ && !(compiling_.cache.empty() && compiling_.nvrtc.empty())) {
      return refuse("plan a program: --cache and --nvrtc are for --compile");
    }
    if (gpu_ && (kernels_ || dot_ || globals.json)) {
      return refuse("plan a program: --kernels, --dot and --json are not for --gpu");
    }
    if (dot_ && (kernels_ || globals.json)) {
      return refuse("plan a program: --dot is a picture of its own, without --kernels or --json");
    }
    if (act_ == Act::kPrint && globals.json) {
      return refuse("print a program: it is text, there is no --json of it");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> GpuPlanText(const Globals& globals,
                                          const compute::Program& program) const {
    ASSIGN_OR_RETURN(const compute::GpuArch arch, compute::GpuArchOf(*gpu_));
    if (measured_on_) return MeasuredGpuPlanText(globals, program, arch);
    ASSIGN_OR_RETURN(const compute::GpuPlan plan, compute::MakeGpuPlan(program, arch));
    return compile_ ? CompiledKernelsText(plan, compiling_) : compute::ToText(plan, source_);
  }

  // The plan is that of the daemon's GPU, which may have no library for products.
  absl::StatusOr<std::string> MeasuredGpuPlanText(const Globals& globals,
                                                  const compute::Program& program,
                                                  const compute::GpuArch& arch) const {
    ASSIGN_OR_RETURN(const DeviceTimes times,
                     BenchOnDevice(globals, program, *measured_on_, iterations_));
    if (!absl::StartsWith(times.target, absl::StrCat("gpu ", arch.name, ","))) {
      return Error(
          absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
          absl::StrCat("plan a program: device ", *measured_on_, " is no GPU of ", arch.name,
                       "; the daemon's plan for it ends with '", times.target, "'"));
    }
    compute::GpuOptions options;
    options.library_products = absl::StrContains(times.target, "products by cuBLASLt");
    ASSIGN_OR_RETURN(const compute::GpuPlan plan, compute::MakeGpuPlan(program, arch, options));
    return absl::StrCat(compute::ToText(plan, source_), "\n", EstimatedAndMeasured(times));
  }

  static std::string Summary(const compute::Program& program, bool json) {
    const compute::Cost cost = compute::CostOf(program);
    const std::pair<const char*, uint64_t> numbers[] = {
        {"ops", program.nodes.size()},   {"steps", cost.steps},
        {"flops", cost.flops},           {"transcendentals", cost.transcendentals},
        {"bytes_read", cost.bytes_read}, {"bytes_written", cost.bytes_written},
        {"bytes_sent", cost.bytes_sent}, {"bytes_received", cost.bytes_received},
    };
    const std::string fingerprint = compute::ToString(compute::FingerprintOf(program));
    std::string text = json ? absl::StrCat("{\"fingerprint\":\"", fingerprint, "\"")
                            : absl::StrCat("fingerprint ", fingerprint);
    for (const auto& [name, number] : numbers) {
      absl::StrAppend(&text, json ? ",\"" : "\n", name, json ? "\":" : " ", number);
    }
    return absl::StrCat(text, json ? "}\n" : "\n");
  }

  enum class Act { kCheck, kPrint, kPlan, kRun, kBench, kList, kBarred, kRelease };

  Act act_ = Act::kCheck;
  bool simplified_ = false;
  bool kernels_ = false;
  bool dot_ = false;
  std::optional<std::string> gpu_;
  bool source_ = false;
  bool compile_ = false;
  CompileSettings compiling_;
  bool daemon_ = false;
  bool poison_ = false;
  DaemonRun by_daemon_;
  std::string path_;
  std::vector<std::string> released_;
  bool release_all_ = false;
  std::vector<std::string> bindings_;
  std::optional<size_t> threads_;
  std::optional<uint64_t> measured_on_;
  size_t iterations_ = 7;
};

}  // namespace

void AddProgramCommand(CommandList& commands) {
  commands.push_back(std::make_unique<ProgramCommand>());
}

}  // namespace ferry::tools
