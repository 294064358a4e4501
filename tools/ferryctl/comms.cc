// SPDX-License-Identifier: Apache-2.0
// The command comms: NCCL's communicators, shown and steered.
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
constexpr auto kRight = Table::Align::kRight;

absl::Duration DurationOf(const google::protobuf::Duration& value) {
  return absl::Seconds(value.seconds()) + absl::Nanoseconds(value.nanos());
}

std::string CommsText(const admin::ListCommsResponse& response) {
  Table table({{"DEVICES"},
               {"HERE", kRight},
               {"ATTEMPT", kRight},
               {"STATE"},
               {"BYTES", kRight},
               {"GROUPS", kRight},
               {"MOVED", kRight},
               {"RUNNING", kRight},
               {"AGE", kRight},
               {"IDLE", kRight},
               {"OPENED IN", kRight},
               {"ERROR"}});
  for (const admin::Comm& comm : response.comms()) {
    table.AddRow({absl::StrCat(comm.low_device_id(), "-", comm.high_device_id()),
                  absl::StrCat(comm.device_id()), absl::StrCat(comm.attempt()), comm.state(),
                  HumanSize(comm.bytes()), HumanCount(comm.groups()), HumanSize(comm.moved_bytes()),
                  HumanCount(comm.running()), DurationText(DurationOf(comm.age())),
                  DurationText(DurationOf(comm.idle())), DurationText(DurationOf(comm.open_took())),
                  comm.error()});
  }
  return table.ToString();
}

class CommsCommand : public Command {
 public:
  CommsCommand()
      : Command("comms",
                "NCCL's communicators: 'list'; 'warm', 'evict' or 'abort' that of two devices") {}
  void Define(CLI::App& app) override {
    app.add_option("action", action_, "list, warm, evict or abort")
        ->check(OneOf({"list", "warm", "evict", "abort"}));
    app.add_option("devices", devices_, "Two global device ids, one of them this daemon's")
        ->expected(2)
        ->check(IdFrom("ferryctl devices"));
    app.add_option("--attempt", attempt_, "abort: which one, where one closes and the next opens")
        ->check(AtLeast<uint32_t>(1));
  }
  absl::StatusOr<int> Run(const Globals& globals) override {
    if ((action_ == "list") != devices_.empty()) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                   action_ == "list" ? "comms list takes no devices"
                                     : absl::StrCat("comms ", action_,
                                                    " takes two device ids; `ferryctl devices` "
                                                    "shows them"));
    }
    if (attempt_ != 0 && action_ != "abort") {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                   absl::StrCat("--attempt is of comms abort, not of comms ", action_));
    }
    ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
    if (action_ == "warm") {
      return Steer<admin::WarmCommRequest, admin::WarmCommResponse>(
          client, globals, &admin::AdminService::Stub::WarmComm, "is being opened, if it is not");
    }
    if (action_ == "evict") {
      return Steer<admin::EvictCommRequest, admin::EvictCommResponse>(
          client, globals, &admin::AdminService::Stub::EvictComm, "is closed if it is idle");
    }
    if (action_ == "abort") {
      return Steer<admin::AbortCommRequest, admin::AbortCommResponse>(
          client, globals, &admin::AdminService::Stub::AbortComm, "is being aborted");
    }
    admin::ListCommsResponse response;
    RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
      return stub.ListComms(context, admin::ListCommsRequest(), &response);
    }));
    std::printf("%s", globals.json ? absl::StrCat(MessageJson(response), "\n").c_str()
                                   : CommsText(response).c_str());
    return kExitOk;
  }

 private:
  template <typename Request, typename Response, typename Method>
  absl::StatusOr<int> Steer(AdminClient& client, const Globals& globals, Method method,
                            const char* what) {
    Request request;
    request.set_device_id(devices_[0]);
    request.set_other_device_id(devices_[1]);
    if constexpr (requires { request.set_attempt(attempt_); }) request.set_attempt(attempt_);
    Response response;
    RETURN_IF_ERROR(client.Call(
        [&](auto& stub, auto* context) { return (stub.*method)(context, request, &response); }));
    std::string which;
    if constexpr (requires { response.attempt(); }) {
      which = absl::StrCat("attempt ", response.attempt(), " of ");
    }
    std::printf("%s\n", globals.json ? MessageJson(response).c_str()
                                     : absl::StrCat(which, "the communicator of devices ",
                                                    devices_[0], " and ", devices_[1], " ", what)
                                           .c_str());
    return kExitOk;
  }

  std::string action_ = "list";
  std::vector<uint64_t> devices_;
  uint32_t attempt_ = 0;
};

}  // namespace

void AddCommsCommand(CommandList& commands) {
  commands.push_back(std::make_unique<CommsCommand>());
}

}  // namespace ferry::tools
