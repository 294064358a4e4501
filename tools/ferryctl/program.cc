// SPDX-License-Identifier: Apache-2.0
// ferryctl program: what can be said of a program's text, and done with it, without a daemon.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/passes/passes.h"
#include "compute/program/cost.h"
#include "compute/program/fingerprint.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/file_io.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/program_run.h"

namespace ferry::tools {
namespace {

// All that is wrong with `path`, each where it stands; the text itself names the first.
absl::Status Refuse(const std::string& path, const std::vector<Violation>& problems) {
  return WithViolations(Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                              absl::StrCat("check ", path, ": ", problems.size(), " problems: ",
                                           problems[0].field, ": ", problems[0].text)),
                        problems);
}

absl::StatusOr<compute::Program> ReadProgram(const std::string& path) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.bytes() > compute::kMaxTextBytes) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBatchTooLarge,
                 absl::StrCat("read ", path, ": it has ", file.bytes(),
                              " bytes, a program's text at most ", compute::kMaxTextBytes));
  }
  std::string text(file.bytes(), '\0');
  RETURN_IF_ERROR(file.Read(0, text.data(), text.size()));
  compute::ParsedText parsed = compute::Parse(text);
  std::vector<Violation> problems;
  for (const compute::TextProblem& problem : parsed.problems) {
    problems.push_back({absl::StrCat(path, ":", problem.line, ":", problem.column), problem.text});
  }
  if (!problems.empty()) return Refuse(path, problems);
  for (const compute::Problem& problem : compute::Verify(parsed.program)) {
    const std::string line =
        problem.op >= 0 ? absl::StrCat(":", parsed.lines[static_cast<size_t>(problem.op)]) : "";
    problems.push_back({path + line, compute::ToString(parsed.program, problem)});
  }
  if (!problems.empty()) return Refuse(path, problems);
  return std::move(parsed.program);
}

class ProgramCommand : public Command {
 public:
  ProgramCommand()
      : Command("program", "Checks a compute program, prints it, or runs it over files") {}

  void Define(CLI::App& app) override {
    app.require_subcommand(1);
    CLI::App* check =
        app.add_subcommand("check", "Lists every problem; else its fingerprint and what it costs");
    check->callback([this] { act_ = Act::kCheck; });
    CLI::App* print = app.add_subcommand("print", "The canonical text of a good program");
    print->add_flag("--simplified", simplified_,
                    "As it is planned: folded, merged, without dead code");
    print->callback([this] { act_ = Act::kPrint; });
    CLI::App* run = app.add_subcommand("run", "Runs it on this machine's CPU, over files");
    run->add_option("--bind", bindings_, "NAME=FILE, for each buffer: what it holds, or becomes");
    run->callback([this] { act_ = Act::kRun; });
    for (CLI::App* sub : {check, print, run}) {
      sub->add_option("file", path_, "The program's text")->required();
      sub->fallthrough();
    }
  }

  absl::StatusOr<int> Run(const Globals& globals) override {
    ASSIGN_OR_RETURN(compute::Program program, ReadProgram(path_));
    if (simplified_) program = compute::Simplify(program);
    if (act_ == Act::kRun) {
      RETURN_IF_ERROR(RunProgram(compute::Simplify(program), bindings_));
      return kExitOk;
    }
    const std::string text =
        act_ == Act::kPrint ? compute::Print(program) : Summary(program, globals.json);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kExitOk;
  }

 private:
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

  enum class Act { kCheck, kPrint, kRun };

  Act act_ = Act::kCheck;
  bool simplified_ = false;
  std::string path_;
  std::vector<std::string> bindings_;
};

}  // namespace

void AddProgramCommand(CommandList& commands) {
  commands.push_back(std::make_unique<ProgramCommand>());
}

}  // namespace ferry::tools
