// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/cli.h"

#include <CLI/CLI.hpp>

#include <errno.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/descriptor_room.h"
#include "base/limit_text.h"
#include "base/nearest.h"
#include "base/status.h"
#include "base/version.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/options.h"

namespace ferry::tools {
namespace {

// Checks for descriptors: without enough of them gRPC ends the process, with a text that would not
// help.
absl::Status CheckDescriptors() {
  const int error = RoomForDescriptors(kGrpcDescriptors);
  if (error == 0) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted, Reason::kNotReady,
               absl::StrCat("open ", kGrpcDescriptors, " descriptors, as many as a call may need: ",
                            strerror(error), LimitText(error)));
}

int UsageError(const Globals& globals, const std::string& text) {
  const std::string failure = DescribeFailure(
      Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid, text), globals.json);
  std::fprintf(stderr, "%s\n",
               globals.json ? failure.c_str()
                            : absl::StrCat("ferryctl: ", text, "; --help tells more").c_str());
  return kExitUsage;
}

// The text of a usage error. For an unknown command CLI11 only says that one is missing.
std::string Explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* at = &app;  // the innermost command that was understood
  std::string command;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    absl::StrAppend(&command, at->get_name(), " ");
  }
  const std::vector<std::string> rest = app.remaining(true);
  const bool lacks = at == &app || at->get_require_subcommand_min() > 0;
  if (lacks && !rest.empty() && !absl::StartsWith(rest.front(), "-")) {
    std::vector<std::string> known;
    for (const CLI::App* sub : at->get_subcommands([](const CLI::App*) { return true; })) {
      // Hidden commands are not named.
      if (!sub->get_group().empty()) known.push_back(sub->get_name());
    }
    const std::string nearest = Nearest(rest.front(), known);
    return absl::StrCat(
        "there is no command '", command, rest.front(), "'",
        nearest.empty() ? "" : absl::StrCat(" (did you mean '", command, nearest, "'?)"));
  }
  return error.what();
}

}  // namespace

CommandList AllCommands() {
  CommandList commands;
  AddInspectCommands(commands);
  AddTopCommand(commands);
  AddFlightCommand(commands);
  AddHealthCommand(commands);
  AddDoctorCommand(commands);
  AddSupportCommand(commands);
  AddCommsCommand(commands);
  AddControlCommands(commands);
  AddSendCommand(commands);
  AddRecvCommand(commands);
  AddBenchCommands(commands);
  AddProgramCommand(commands);
  AddMakeCheckpointCommand(commands);
  AddPagesCommands(commands);
  return commands;
}

int RunFerryctl(int argc, char** argv) {
  Globals globals;
  const char* runtime_dir = std::getenv("FERRY_RUNTIME_DIR");
  globals.runtime_dir = runtime_dir != nullptr && *runtime_dir != '\0' ? runtime_dir : "/run/ferry";
  // Looked for first, because it also says how a usage error is printed.
  globals.json = std::any_of(
      argv, argv + argc, [](const char* argument) { return std::strcmp(argument, "--json") == 0; });

  CLI::App app("Looks into ferryd, steers it and moves files through it.", "ferryctl");
  app.set_version_flag("--version", "ferryctl " + Version());
  app.add_option("--runtime-dir", globals.runtime_dir,
                 "ferryd's ($FERRY_RUNTIME_DIR or /run/ferry)");
  app.add_flag("--json", globals.json, "Print JSON for programs");
  AddParsed(app, "--timeout", globals.timeout, ParseDuration, "For one call, such as 10s or 250ms");
  app.footer(
      "Exit status: 0 ok, 1 failure, 2 usage, 3 not found, 4 unavailable, 5 denied,\n"
      "6 drained but transfers were cut off, 7 not in time, 8 unhealthy.");

  CommandList commands = AllCommands();
  Command* chosen = nullptr;
  for (const auto& command : commands) {
    CLI::App* sub = app.add_subcommand(command->name(), command->help());
    sub->fallthrough();  // global flags may follow the command
    if (command->hidden()) sub->group("");
    command->Define(*sub);
    sub->callback([&chosen, raw = command.get()] { chosen = raw; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // CLI11 reports by exception, also for --help
    return error.get_exit_code() == 0 ? app.exit(error) : UsageError(globals, Explain(app, error));
  }
  if (chosen == nullptr) return UsageError(globals, "a command is required");
  if (const std::string lacks = chosen->Lacks(); !lacks.empty()) return UsageError(globals, lacks);
  if (const std::string bad = CheckRuntimeDir(globals.runtime_dir); !bad.empty()) {
    return UsageError(globals, bad);
  }

  const absl::Status room = CheckDescriptors();
  absl::StatusOr<int> result = room.ok() ? chosen->Run(globals) : room;
  // A command whose output nobody could read has failed.
  errno = 0;
  if (result.ok() && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    // If this write did not fail, an earlier one did.
    result = absl::ErrnoToStatus(errno != 0 ? errno : EIO, "print the result");
  }
  if (result.ok()) return *result;
  std::fprintf(stderr, "%s%s\n", globals.json ? "" : "ferryctl: ",
               DescribeFailure(result.status(), globals.json).c_str());
  return ExitStatusOf(result.status());
}

}  // namespace ferry::tools
