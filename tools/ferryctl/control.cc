// SPDX-License-Identifier: Apache-2.0
// Commands that steer: drain, undrain, reload, loglevel.
#include <CLI/CLI.hpp>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/status.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/options.h"

namespace ferry::tools {
namespace {

namespace admin = ferry::admin::v1;

class DrainCommand : public Command {
 public:
  DrainCommand()
      : Command("drain",
                "Take no new work, end what waits for its other half, and wait for the rest (the "
                "global --timeout, 120s), then cut it off; exit status 6 if it had to") {}
  absl::StatusOr<int> Run(const Globals& globals) override {
    ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
    const absl::Duration patience = globals.timeout.value_or(absl::Seconds(120));
    admin::DrainRequest request;
    const int64_t nanoseconds = absl::ToInt64Nanoseconds(patience);
    request.mutable_deadline()->set_seconds(nanoseconds / 1'000'000'000);
    request.mutable_deadline()->set_nanos(static_cast<int32_t>(nanoseconds % 1'000'000'000));
    admin::DrainResponse response;
    // The daemon answers at its deadline; the call waits a little longer to hear it.
    RETURN_IF_ERROR(client.Call(
        [&](auto& stub, auto* context) { return stub.Drain(context, request, &response); },
        patience + kAdminTimeout));
    const uint64_t cut = response.cancelled();
    PrintAnswer(globals, response,
                cut == 0 ? "drained"
                         : absl::StrCat("drained, but ", cut, cut == 1 ? " transfer" : " transfers",
                                        " did not end within ", DurationText(patience),
                                        " and had to be cut off"));
    return cut == 0 ? kExitOk : kExitCutOff;
  }
};

class UndrainCommand : public Command {
 public:
  UndrainCommand() : Command("undrain", "Serve again after drain") {}
  absl::StatusOr<int> Run(const Globals& globals) override {
    ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
    admin::UndrainResponse response;
    RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
      return stub.Undrain(context, admin::UndrainRequest(), &response);
    }));
    PrintAnswer(globals, response, "serving");
    return kExitOk;
  }
};

class ReloadCommand : public Command {
 public:
  ReloadCommand() : Command("reload", "Have the daemon read its configuration again") {}
  void Define(CLI::App& app) override {
    app.add_flag("--wait", wait_,
                 "Wait until the new configuration holds, and say what it has changed; fails with "
                 "the reason if it is refused. Without: only the daemon's log says how it went");
  }
  absl::StatusOr<int> Run(const Globals& globals) override {
    ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
    admin::ReloadRequest request;
    request.set_wait(wait_);
    admin::ReloadResponse response;
    RETURN_IF_ERROR(client.Call(
        [&](auto& stub, auto* context) { return stub.Reload(context, request, &response); }));
    PrintAnswer(globals, response, wait_ ? Text(response) : "asked to reload; see the log");
    return kExitOk;
  }

 private:
  static std::string Text(const admin::ReloadResponse& response) {
    std::string text = absl::StrCat("configuration ", response.generation(), ":",
                                    response.changes().empty() ? " nothing has changed" : "");
    for (const admin::SettingChange& change : response.changes()) {
      absl::StrAppend(&text, "\n  ", change.setting(), ": ", change.before(), ", now ",
                      change.after(),
                      change.by_new_sessions() ? ", for clients that attach from now on" : "");
    }
    return text;
  }

  bool wait_ = false;
};

class LogLevelCommand : public Command {
 public:
  LogLevelCommand()
      : Command("loglevel", "Set the daemon's log level until its next reload or start") {}
  void Define(CLI::App& app) override {
    app.add_option("level", level_, "trace, debug, info, warn, error or off")
        ->required()
        ->check(OneOf({"trace", "debug", "info", "warn", "error", "off"}));
  }
  absl::StatusOr<int> Run(const Globals& globals) override {
    ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
    admin::SetLogLevelRequest request;
    request.set_level(level_);
    admin::SetLogLevelResponse response;
    RETURN_IF_ERROR(client.Call(
        [&](auto& stub, auto* context) { return stub.SetLogLevel(context, request, &response); }));
    PrintAnswer(globals, response, absl::StrCat("log level ", level_));
    return kExitOk;
  }

 private:
  std::string level_;
};

}  // namespace

void AddControlCommands(CommandList& commands) {
  commands.push_back(std::make_unique<DrainCommand>());
  commands.push_back(std::make_unique<UndrainCommand>());
  commands.push_back(std::make_unique<ReloadCommand>());
  commands.push_back(std::make_unique<LogLevelCommand>());
}

}  // namespace ferry::tools
