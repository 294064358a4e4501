// SPDX-License-Identifier: Apache-2.0
// What every command of ferryctl shares: the flags before the command's own, and the class Command.
// Single-threaded; main owns the commands.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace CLI {
class App;
}

namespace ferry::tools {

struct Globals {
  std::string runtime_dir;
  bool json = false;
  std::optional<absl::Duration> timeout;  // nothing: the command's own default

  std::string ClientDir() const { return runtime_dir + "/client"; }
  std::string AdminSocket() const { return runtime_dir + "/admin/admin.sock"; }
};

// The meaning of ferryctl's exit status. --help prints it; stable, for scripts and probes.
enum ExitStatus {
  kExitOk = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitNotFound = 3,
  kExitUnavailable = 4,
  kExitDenied = 5,
  kExitCutOff = 6,
  kExitDeadline = 7,
  kExitUnhealthy = 8,
};

class Command {
 public:
  Command(const char* name, const char* help) : name_(name), help_(help) {}
  virtual ~Command() = default;
  const char* name() const { return name_; }
  const char* help() const { return help_; }
  // A command for other programs, not people, is left out of the help.
  virtual bool hidden() const { return false; }
  // Adds the command's own flags, whose values are stored in the command.
  virtual void Define(CLI::App& app) { (void)app; }
  // What is wrong with the flags taken together; "": nothing.
  virtual std::string Lacks() const { return ""; }
  // Returns the exit status, or why the command failed.
  virtual absl::StatusOr<int> Run(const Globals& globals) = 0;

 private:
  const char* const name_;
  const char* const help_;
};

using CommandList = std::vector<std::unique_ptr<Command>>;

// One function for each file of commands.
void AddInspectCommands(
    CommandList& commands);                   // status, devices, sessions, transfers, route, dump
void AddCommsCommand(CommandList& commands);  // comms
void AddControlCommands(CommandList& commands);  // drain, undrain, reload, loglevel
void AddFlightCommand(CommandList& commands);
void AddHealthCommand(CommandList& commands);
void AddDoctorCommand(CommandList& commands);
void AddSupportCommand(CommandList& commands);
void AddTopCommand(CommandList& commands);
void AddSendCommand(CommandList& commands);
void AddRecvCommand(CommandList& commands);
void AddBenchCommands(CommandList& commands);
void AddProgramCommand(CommandList& commands);
void AddMakeCheckpointCommand(CommandList& commands);
void AddPagesCommands(CommandList& commands);  // completion, manual
CommandList AllCommands();

}  // namespace ferry::tools
