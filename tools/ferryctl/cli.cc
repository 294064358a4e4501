// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/cli.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>

#include "base/status.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/globals.h"

namespace ferry::tools {

CommandList AllCommands() {
  CommandList commands;
  AddInspectCommands(commands);
  AddHealthCommand(commands);
  AddControlCommands(commands);
  AddSendCommand(commands);
  AddRecvCommand(commands);
  AddBenchCommands(commands);
  AddMakeCheckpointCommand(commands);
  return commands;
}

int RunFerryctl(int argc, char** argv) {
  Globals globals;
  const char* runtime_dir = std::getenv("FERRY_RUNTIME_DIR");
  globals.runtime_dir = runtime_dir != nullptr && *runtime_dir != '\0' ? runtime_dir : "/run/ferry";
  std::string timeout;

  CLI::App app("Looks into ferryd, steers it and moves files through it.", "ferryctl");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("ferryctl ") + FERRY_VERSION);
  app.add_option("--runtime-dir", globals.runtime_dir,
                 "ferryd's ($FERRY_RUNTIME_DIR or /run/ferry)");
  app.add_flag("--json", globals.json, "Print JSON for programs");
  app.add_option("--timeout", timeout, "For one call, such as 10s or 250ms");
  app.footer(
      "Exit status: 0 ok, 1 failure, 2 usage, 3 not found, 4 unavailable, 5 denied, 8 unhealthy.");

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
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }

  absl::StatusOr<int> result = kExitOk;
  if (!timeout.empty()) {
    auto parsed = ParseDuration(timeout);
    if (!parsed.ok()) {
      std::fprintf(stderr, "--timeout: %s\n", std::string(parsed.status().message()).c_str());
      return kExitUsage;
    }
    globals.timeout = *parsed;
  }
  result = chosen->Run(globals);
  if (result.ok()) return *result;
  std::fprintf(stderr, "%s%s\n", globals.json ? "" : "ferryctl: ",
               DescribeFailure(result.status(), globals.json).c_str());
  return ExitStatusOf(result.status());
}

}  // namespace ferry::tools
