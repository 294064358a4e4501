// SPDX-License-Identifier: Apache-2.0
// ferryctl doctor: what is wrong with this node, or makes it slower than it could be, and what to
// do.
#include "tools/ferryctl/doctor.h"

#include <sys/timex.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/format.h"

namespace ferry::tools {
namespace {

namespace admin = ferry::admin::v1;

const char* NameOf(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return "ok";
    case Severity::kNote:
      return "note";
    case Severity::kWarning:
      return "warning";
    case Severity::kWrong:
      return "wrong";
  }
  return "";
}

Finding SocketFinding(const std::string& name, const std::string& path, const std::string& who) {
  const absl::Status status = CheckSocket(path);
  if (status.ok()) return {Severity::kOk, name, path, ""};
  return {Severity::kWrong, name, std::string(status.message()),
          absl::IsPermissionDenied(status) ? absl::StrCat("this user is not one of ", who) : ""};
}

Finding ClockFinding() {
  timex clock = {};
  const bool in_step = adjtimex(&clock) != -1 && (clock.status & STA_UNSYNC) == 0;
  if (in_step) return {Severity::kOk, "clock", "kept in step", ""};
  return {Severity::kNote, "clock", "not kept in step with others",
          "transfers do not need it; to compare two nodes' logs run NTP or PTP"};
}

bool IsGpu(const admin::ClusterDevice& device) {
  return device.device().kind() == ferry::v1::Device::KIND_GPU;
}

// Between the first device of that kind here and the first one there, if there are such.
absl::Status AskRoutes(AdminClient& client, const admin::ListDevicesResponse& devices,
                       const std::string& peer, bool gpus, Findings& findings) {
  std::optional<uint64_t> here, there;
  for (const admin::ClusterDevice& device : devices.devices()) {
    if (IsGpu(device) != gpus) continue;
    const uint64_t id = device.device().global_device_id();
    if (device.local() && !here) here = id;
    if (device.node() == peer && !there) there = id;
  }
  if (!here || !there) return absl::OkStatus();
  admin::ExplainRouteRequest request;
  admin::ExplainRouteResponse routes;
  request.set_src_global_device_id(*here);
  request.set_dst_global_device_id(*there);
  request.set_bytes(uint64_t{1} << 20);
  RETURN_IF_ERROR(client.Call(
      [&](auto& stub, auto* context) { return stub.ExplainRoute(context, request, &routes); }));
  for (Finding& finding : RouteFindings(peer, gpus, routes)) {
    findings.push_back(std::move(finding));
  }
  return absl::OkStatus();
}

absl::Status AskDaemon(const Globals& globals, admin::GetStatusResponse& status,
                       Findings& findings) {
  if (!CheckSocket(globals.AdminSocket()).ok()) return absl::OkStatus();  // is told already
  ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
  admin::ListDevicesResponse devices;
  RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
    return stub.GetStatus(context, admin::GetStatusRequest(), &status);
  }));
  RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
    return stub.ListDevices(context, admin::ListDevicesRequest(), &devices);
  }));
  for (Finding& finding : DaemonFindings(status, Version())) {
    findings.push_back(std::move(finding));
  }
  for (const admin::Peer& peer : status.peers()) {
    if (peer.state() != "up") continue;
    for (const bool gpus : {false, true}) {
      RETURN_IF_ERROR(AskRoutes(client, devices, peer.node(), gpus, findings));
    }
  }
  return absl::OkStatus();
}

class DoctorCommand : public Command {
 public:
  DoctorCommand()
      : Command("doctor",
                "What is wrong with this node, or slower than it could be, and what to do; exit "
                "status 8 if something is wrong") {}

  absl::StatusOr<int> Run(const Globals& globals) override {
    const Findings findings = Examine(globals);
    Show(globals, findings);
    const bool wrong = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
      return finding.severity == Severity::kWrong;
    });
    return wrong ? kExitUnhealthy : kExitOk;
  }

 private:
  static void Show(const Globals& globals, const Findings& findings) {
    if (globals.json) {
      std::printf("%s\n", FindingsJson(findings).dump().c_str());
      return;
    }
    for (const Finding& finding : findings) {
      std::printf("%-8s %s: %s\n", NameOf(finding.severity), Printable(finding.check).c_str(),
                  Printable(finding.found).c_str());
      if (!finding.advice.empty()) std::printf("         -> %s\n", finding.advice.c_str());
    }
    const auto count = [&](Severity severity) {
      return std::count_if(findings.begin(), findings.end(), [severity](const Finding& finding) {
        return finding.severity == severity;
      });
    };
    std::printf("%td wrong, %td warnings, %td notes, %td ok\n", count(Severity::kWrong),
                count(Severity::kWarning), count(Severity::kNote), count(Severity::kOk));
  }
};

}  // namespace

Findings Examine(const Globals& globals) {
  Findings findings = {
      SocketFinding("attach.sock", globals.ClientDir() + "/attach.sock",
                    "those that sockets.client (or the unit of the socket) lets attach"),
      SocketFinding("client.sock", globals.ClientDir() + "/client.sock",
                    "those that sockets.client (or the unit of the socket) lets attach"),
      SocketFinding("admin.sock", globals.AdminSocket(),
                    "the operators: root, and the group of sockets.admin")};
  admin::GetStatusResponse status;
  if (const absl::Status asked = AskDaemon(globals, status, findings); !asked.ok()) {
    findings.push_back({Severity::kWrong, "daemon", std::string(asked.message()), ""});
  }
  const bool has_gpus = !status.gpus().empty() && absl::ascii_isdigit(status.gpus()[0]);
  const bool has_ucx = !status.ucx().empty() && absl::ascii_isdigit(status.ucx()[0]);
  for (Finding& finding : HostFindings("", status.pid(), has_gpus, has_ucx)) {
    findings.push_back(std::move(finding));
  }
  findings.push_back(ClockFinding());
  return findings;
}

nlohmann::ordered_json FindingsJson(const Findings& findings) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    out.push_back({{"severity", NameOf(finding.severity)},
                   {"check", Printable(finding.check)},
                   {"found", Printable(finding.found)},
                   {"advice", finding.advice}});
  }
  return out;
}

void AddDoctorCommand(CommandList& commands) {
  commands.push_back(std::make_unique<DoctorCommand>());
}

}  // namespace ferry::tools
