// SPDX-License-Identifier: Apache-2.0
// Commands that show: status, devices, sessions, transfers, route, dump; and those that act on what
// these show.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/duration.h"
#include "base/status.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/ends.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/options.h"
#include "tools/ferryctl/program_list.h"

namespace ferry::tools {
namespace {

namespace admin = ferry::admin::v1;
constexpr auto kRight = Table::Align::kRight;

void Print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

absl::Duration FromProto(const google::protobuf::Duration& value) {
  return absl::Seconds(value.seconds()) + absl::Nanoseconds(value.nanos());
}

// "up", or "up, drains for 118 s at most".
std::string StateText(const admin::Peer& peer) {
  if (!peer.draining()) return peer.state();
  if (!peer.has_drains_for()) return absl::StrCat(peer.state(), ", drains");
  return absl::StrCat(peer.state(), ", drains for ",
                      DurationText(absl::Ceil(FromProto(peer.drains_for()), absl::Seconds(1))),
                      " at most");
}

// A command that is one unary call: subclasses say how to ask and how to show the answer to people.
template <typename Request, typename Response,
          grpc::Status (admin::AdminService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Response*)>
class ShowCommand : public Command {
 public:
  using Command::Command;
  absl::StatusOr<int> Run(const Globals& globals) override {
    ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
    Response response;
    RETURN_IF_ERROR(client.Call(
        [&](auto& stub, auto* context) { return (stub.*method)(context, request_, &response); }));
    Print(globals.json ? absl::StrCat(MessageJson(response), "\n") : Show(response));
    return ResultOf(response);
  }

 protected:
  virtual std::string Show(const Response& response) = 0;
  virtual int ResultOf(const Response&) { return kExitOk; }
  Request request_;
};

class StatusCommand : public ShowCommand<admin::GetStatusRequest, admin::GetStatusResponse,
                                         &admin::AdminService::Stub::GetStatus> {
 public:
  StatusCommand() : ShowCommand("status", "How the daemon and its peers stand") {}

 protected:
  std::string Show(const admin::GetStatusResponse& s) override {
    Table facts({{"node"}, {s.node()}});
    facts.AddRow({"version", s.version()});
    facts.AddRow({"pid", absl::StrCat(s.pid())});
    facts.AddRow({"incarnation", absl::StrCat(absl::Hex(s.incarnation(), absl::kZeroPad16))});
    facts.AddRow({"uptime", DurationText(FromProto(s.uptime()))});
    facts.AddRow({"state", s.draining() ? "draining" : "serving"});
    facts.AddRow({"sessions", HumanCount(s.sessions())});
    facts.AddRow({"transfers in flight", HumanCount(s.transfers_in_flight())});
    facts.AddRow({"transfers ok", HumanCount(s.transfers_ok())});
    facts.AddRow({"transfers failed", HumanCount(s.transfers_failed())});
    facts.AddRow({"received", HumanSize(s.bytes_received())});
    facts.AddRow({"gpus", s.gpus()});
    facts.AddRow({"ucx", s.ucx()});
    facts.AddRow({"nccl", s.nccl()});
    if (s.nccl_environment_size() > 0) {
      facts.AddRow({"nccl environment", absl::StrJoin(s.nccl_environment(), " ")});
    }
    facts.AddRow({"programs", s.programs()});
    facts.AddRow({"log level", s.log_level()});
    facts.AddRow({"configuration", absl::StrCat("generation ", s.config_generation())});
    std::string text = facts.ToString();
    if (s.peers().empty()) return text;
    Table peers({{"PEER"}, {"ADDRESS"}, {"STATE"}, {"MAPPED"}, {"DEVICES"}, {"ERROR"}});
    for (const admin::Peer& peer : s.peers()) {
      peers.AddRow({peer.node(), peer.address(), StateText(peer), peer.mapped() ? "yes" : "no",
                    absl::StrJoin(peer.global_device_ids(), ","), peer.error()});
    }
    return absl::StrCat(text, "\n", peers.ToString());
  }
};

// As nvidia-smi says it.
std::string UuidText(const std::string& uuid) {
  if (uuid.empty()) return "";
  const std::string hex = absl::BytesToHexString(uuid);
  return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

std::string KindText(ferry::v1::Device::Kind kind) {
  return kind == ferry::v1::Device::KIND_GPU    ? "gpu"
         : kind == ferry::v1::Device::KIND_HOST ? "host"
                                                : "not known";  // unknown: the link was not up yet
}

// "18 to 2,3; none to 4": from this GPU to the others of its daemon.
std::string NvlinksText(const admin::ClusterDevice& gpu) {
  // In the order of the first GPU of each.
  std::vector<std::pair<int, std::vector<uint64_t>>> groups;
  for (const admin::GpuLink& link : gpu.gpu_links()) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return group.first == link.nvlinks();
    });
    auto& group =
        same != groups.end() ? *same : groups.emplace_back(link.nvlinks(), std::vector<uint64_t>());
    group.second.push_back(link.global_device_id());
  }
  return absl::StrJoin(groups, "; ", [](std::string* out, const auto& group) {
    absl::StrAppend(out, group.first > 0    ? absl::StrCat(group.first)
                         : group.first == 0 ? "none"
                                            : "not known");
    absl::StrAppend(out, " to ", absl::StrJoin(group.second, ","));
  });
}

class DevicesCommand : public ShowCommand<admin::ListDevicesRequest, admin::ListDevicesResponse,
                                          &admin::AdminService::Stub::ListDevices> {
 public:
  DevicesCommand()
      : ShowCommand("devices",
                    "The devices of the cluster; 'release N' gives a GPU back, "
                    "'reclaim N' takes it again") {}
  void Define(CLI::App& app) override {
    app.add_option("action", action_, "release or reclaim")->check(OneOf({"release", "reclaim"}));
    app.add_option("device", device_, "Global id of a GPU of this daemon")
        ->check(IdFrom("ferryctl devices"));
  }
  std::string Lacks() const override {
    if (action_.empty() || device_) return "";
    return absl::StrCat("devices ", action_,
                        " takes the id of a GPU; `ferryctl devices` shows them");
  }
  absl::StatusOr<int> Run(const Globals& globals) override {
    if (action_.empty()) return ShowCommand::Run(globals);
    ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
    RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
      if (action_ == "release") {
        admin::ReleaseDeviceRequest request;
        admin::ReleaseDeviceResponse response;
        request.set_global_device_id(*device_);
        return stub.ReleaseDevice(context, request, &response);
      }
      admin::ReclaimDeviceRequest request;
      admin::ReclaimDeviceResponse response;
      request.set_global_device_id(*device_);
      return stub.ReclaimDevice(context, request, &response);
    }));
    if (!globals.json)
      Print(absl::StrCat("device ", *device_, " ", action_ == "release" ? "released" : "reclaimed",
                         "\n"));
    return kExitOk;
  }

 protected:
  std::string Show(const admin::ListDevicesResponse& response) override {
    Table table({{"DEVICE", kRight},
                 {"KIND"},
                 {"NAME"},
                 {"NODE"},
                 {"HERE"},
                 {"ARENAS", kRight},
                 {"IN ARENAS", kRight},
                 {"FREE", kRight},
                 {"CONTEXT"},
                 {"NUMA", kRight},
                 {"NVLINKS"},
                 {"UUID"}});
    for (const admin::ClusterDevice& row : response.devices()) {
      const bool gpu = row.device().kind() == ferry::v1::Device::KIND_GPU;
      table.AddRow({absl::StrCat(row.device().global_device_id()), KindText(row.device().kind()),
                    row.device().name(), row.node(), row.local() ? "yes" : "",
                    row.local() ? HumanCount(row.arenas()) : "",
                    row.local() ? HumanSize(row.arena_bytes()) : "",
                    row.memory_known() ? HumanSize(row.memory_free_bytes()) : "",
                    !gpu || !row.local() ? ""
                    : row.released()     ? "released"
                    : row.context()      ? "yes"
                                         : "no",
                    !gpu || !row.local()   ? ""
                    : row.numa_node() >= 0 ? absl::StrCat(row.numa_node())
                                           : "not known",
                    NvlinksText(row), UuidText(row.device().uuid())});
    }
    return table.ToString();
  }

 private:
  std::string action_;
  std::optional<uint64_t> device_;
};

// "2 memfd, 1 memfd imported, 1 cuda_ipc imported"
std::string MemoryText(const admin::Session& session) {
  return absl::StrJoin(
      session.memory(), ", ", [](std::string* out, const admin::SessionMemory& row) {
        const std::string kind = absl::AsciiStrToLower(
            absl::StripPrefix(ferry::v1::ArenaMemory_Name(row.memory()), "ARENA_MEMORY_"));
        absl::StrAppend(out, row.arenas(), " ", kind, row.imported() ? " imported" : "");
      });
}

// "3: trainer-0 (session 7), trainer-1 (session 9)"; for another node's members only how many.
std::string MembersText(const admin::MembersRow& row) {
  std::string text = HumanCount(row.count());
  for (const admin::Member& member : row.members()) {
    absl::StrAppend(&text, &member == &row.members(0) ? ": " : ", ", member.name(), " (session ",
                    member.session_id(), ")");
  }
  return text;
}

class MembersCommand : public ShowCommand<admin::ListMembersRequest, admin::ListMembersResponse,
                                          &admin::AdminService::Stub::ListMembers> {
 public:
  MembersCommand()
      : ShowCommand("members",
                    "Who has joined which domain on which device, here and at the peers") {}

 protected:
  std::string Show(const admin::ListMembersResponse& response) override {
    Table table({{"DEVICE", kRight}, {"NODE"}, {"DOMAIN"}, {"MEMBERS"}, {"STATE"}});
    for (const admin::MembersRow& row : response.rows()) {
      std::string state = row.lost() ? "the link to it was lost" : "";
      if (row.count() == 0) {
        state = absl::StrCat("deserted ", DurationText(FromProto(row.left_ago())), " ago",
                             row.last().empty() ? "" : " by ", row.last());
      }
      table.AddRow({absl::StrCat(row.global_device_id()), row.node(), row.domain_fingerprint(),
                    MembersText(row), state});
    }
    return table.ToString();
  }
};

class JobsCommand : public ShowCommand<admin::ListJobsRequest, admin::ListJobsResponse,
                                       &admin::AdminService::Stub::ListJobs> {
 public:
  JobsCommand()
      : ShowCommand("jobs",
                    "The compute jobs that are not over, and what they wait for; `program "
                    "list` has the daemon's programs too") {}

 protected:
  std::string Show(const admin::ListJobsResponse& response) override { return JobsText(response); }
};

class SessionsCommand : public ShowCommand<admin::ListSessionsRequest, admin::ListSessionsResponse,
                                           &admin::AdminService::Stub::ListSessions> {
 public:
  SessionsCommand()
      : ShowCommand("sessions",
                    "The client processes of this daemon; 'close N' ends one as if its process "
                    "had died") {}
  void Define(CLI::App& app) override {
    app.add_option("action", action_, "close")->check(OneOf({"close"}));
    app.add_option("session", session_, "Its number")->check(IdFrom("ferryctl sessions"));
  }
  std::string Lacks() const override {
    if (action_.empty() || session_) return "";
    return "sessions close takes the number of one; `ferryctl sessions` shows them";
  }
  absl::StatusOr<int> Run(const Globals& globals) override {
    if (action_.empty()) return ShowCommand::Run(globals);
    ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
    return EndSession(client, globals, *session_);
  }

 protected:
  std::string Show(const admin::ListSessionsResponse& response) override {
    Table table({{"SESSION", kRight},
                 {"NAME"},
                 {"PID", kRight},
                 {"UID", kRight},
                 {"AGE", kRight},
                 {"ARENAS", kRight},
                 {"MEMORY", kRight},
                 {"IN FLIGHT", kRight},
                 {"OK", kRight},
                 {"FAILED", kRight},
                 {"JOBS RAN", kRight},
                 {"ON GPUS", kRight},
                 {"STATE"},
                 {"MADE OF"}});
    for (const admin::Session& s : response.sessions()) {
      table.AddRow({absl::StrCat(s.session_id()), s.name(), absl::StrCat(s.pid()),
                    absl::StrCat(s.uid()), DurationText(FromProto(s.age())), HumanCount(s.arenas()),
                    HumanSize(s.bytes()), HumanCount(s.transfers_in_flight()),
                    HumanCount(s.transfers_ok()), HumanCount(s.transfers_failed()),
                    DurationText(FromProto(s.host_time()) + FromProto(s.gpu_time())),
                    DurationText(FromProto(s.gpu_time())), s.closing() ? "closing" : "open",
                    MemoryText(s)});
    }
    return table.ToString();
  }

 private:
  std::string action_;
  std::optional<uint64_t> session_;
};

std::string RouteName(ferry::v1::Route route) {
  return route == ferry::v1::ROUTE_UNSPECIFIED ? "" : RouteText(static_cast<int>(route));
}

class TransfersCommand
    : public ShowCommand<admin::ListTransfersRequest, admin::ListTransfersResponse,
                         &admin::AdminService::Stub::ListTransfers> {
 public:
  TransfersCommand()
      : ShowCommand("transfers",
                    "Transfers posted and not over, oldest first; 'cancel ID...' ends some that "
                    "are not launched yet") {}
  void Define(CLI::App& app) override {
    app.add_option("action", action_, "cancel")->check(OneOf({"cancel"}));
    app.add_option("ids", ids_,
                   "SESSION/ID, or the ID alone if only one session has such a transfer or job");
    app.footer(
        "STATE: waiting (a receive: for its send; a send: for the link to the other node), "
        "offered\n"
        "(the other node knows of the send and waits for the receive), matched (both halves are\n"
        "there, their bytes wait for what WAITS FOR says), launched (the bytes move), armed "
        "(matched\n"
        "and prepared: the bytes move whenever both ends have fired).");
    app.add_option_function<uint32_t>(
           "--limit", [this](uint32_t limit) { request_.set_limit(limit); }, "Show at most so many")
        ->check(AtLeast<uint32_t>(1));
  }
  std::string Lacks() const override {
    if (action_.empty() || !ids_.empty()) return "";
    return absl::StrCat("transfers cancel takes ids, ", kCancelledIds);
  }
  absl::StatusOr<int> Run(const Globals& globals) override {
    if (action_.empty()) return ShowCommand::Run(globals);
    ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
    return CancelTransfers(client, globals, ids_);
  }

 protected:
  std::string Show(const admin::ListTransfersResponse& response) override {
    Table table({{"SESSION", kRight},
                 {"ID", kRight},
                 {"SIDE"},
                 {"SRC", kRight},
                 {"DST", kRight},
                 {"KEY"},
                 {"DOMAIN"},
                 {"BYTES", kRight},
                 {"STATE"},
                 {"ROUTE"},
                 {"FIRINGS", kRight},
                 {"AGE", kRight},
                 {"WAITS FOR"}});
    for (const admin::TransferRow& t : response.transfers()) {
      table.AddRow({absl::StrCat(t.session_id()), absl::StrCat(t.transfer_id()), t.side(),
                    absl::StrCat(t.src_global_device_id()), absl::StrCat(t.dst_global_device_id()),
                    t.key(), t.domain_fingerprint(), HumanCount(t.bytes()), t.state(),
                    RouteName(t.route()), t.prepared() ? HumanCount(t.firings()) : "",
                    DurationText(FromProto(t.age())), t.waits_for()});
    }
    const uint64_t shown = static_cast<uint64_t>(response.transfers_size());
    std::string text = table.ToString();
    if (shown < response.total()) {
      absl::StrAppend(&text, HumanCount(response.total() - shown), " more\n");
    }
    return text;
  }

 private:
  std::string action_;
  std::vector<std::string> ids_;
};

class RouteCommand : public ShowCommand<admin::ExplainRouteRequest, admin::ExplainRouteResponse,
                                        &admin::AdminService::Stub::ExplainRoute> {
 public:
  RouteCommand() : ShowCommand("route", "How bytes would travel between two devices, and why") {}
  void Define(CLI::App& app) override {
    app.add_option_function<uint64_t>(
           "source", [this](uint64_t id) { request_.set_src_global_device_id(id); },
           "Global device id")
        ->required()
        ->check(IdFrom("ferryctl devices"));
    app.add_option_function<uint64_t>(
           "destination", [this](uint64_t id) { request_.set_dst_global_device_id(id); },
           "Global device id")
        ->required()
        ->check(IdFrom("ferryctl devices"));
    AddParsed(app, "--bytes", bytes_, ParseSize, "Of a transfer of this size (1 MiB)");
  }
  absl::StatusOr<int> Run(const Globals& globals) override {
    request_.set_bytes(bytes_);
    return ShowCommand::Run(globals);
  }

 protected:
  std::string Show(const admin::ExplainRouteResponse& response) override {
    Table table({{"ROUTE"},
                 {"AVAILABLE"},
                 {"CHOSEN"},
                 {"TIME", kRight},
                 {"LATENCY", kRight},
                 {"GB/S", kRight},
                 {"BY"},
                 {"SMS"},
                 {"REASON"}});
    for (const admin::RouteOption& option : response.options()) {
      table.AddRow({RouteName(option.route()), option.available() ? "yes" : "no",
                    option.route() == response.chosen() ? "<-" : "",
                    option.has_estimate() ? DurationText(FromProto(option.estimate())) : "",
                    option.has_latency() ? DurationText(FromProto(option.latency())) : "",
                    option.bytes_per_second() > 0
                        ? absl::StrFormat("%.2f", option.bytes_per_second() / 1e9)
                        : "",
                    !option.has_estimate() ? ""
                    : option.measured()    ? "measured"
                                           : "prior",
                    option.sms_busy() ? "busy" : "", option.reason()});
    }
    return table.ToString();
  }
  int ResultOf(const admin::ExplainRouteResponse& response) override {
    return response.chosen() == ferry::v1::ROUTE_UNSPECIFIED ? kExitUnhealthy : kExitOk;
  }

 private:
  uint64_t bytes_ = uint64_t{1} << 20;
};

class DumpCommand : public Command {
 public:
  DumpCommand() : Command("dump", "The daemon's whole state and its flight recorder, as text") {}
  absl::StatusOr<int> Run(const Globals& globals) override {
    ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
    std::string all;
    RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
      auto reader = stub.Dump(context, admin::DumpRequest());
      admin::DumpResponse piece;
      while (reader->Read(&piece)) all += piece.chunk();
      return reader->Finish();
    }));
    if (globals.json) {
      admin::DumpResponse whole;
      whole.set_chunk(all);
      Print(absl::StrCat(MessageJson(whole), "\n"));
    } else {
      Print(PrintableLines(all));
    }
    return kExitOk;
  }
};

}  // namespace

void AddInspectCommands(CommandList& commands) {
  commands.push_back(std::make_unique<StatusCommand>());
  commands.push_back(std::make_unique<DevicesCommand>());
  commands.push_back(std::make_unique<SessionsCommand>());
  commands.push_back(std::make_unique<JobsCommand>());
  commands.push_back(std::make_unique<MembersCommand>());
  commands.push_back(std::make_unique<TransfersCommand>());
  commands.push_back(std::make_unique<RouteCommand>());
  commands.push_back(std::make_unique<DumpCommand>());
}

}  // namespace ferry::tools
