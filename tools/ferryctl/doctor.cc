// SPDX-License-Identifier: Apache-2.0
// ferryctl doctor: finds what is wrong with this node, or makes it slower than it could be, and
// says what to do.
#include "tools/ferryctl/doctor.h"

#include <sys/stat.h>
#include <sys/timex.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "base/version.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/child_process.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/link_findings.h"
#include "tools/ferryctl/options.h"
#include "tools/ferryctl/ports.h"
#include "tools/ferryctl/socket_findings.h"

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

constexpr char kUsualConfig[] = "/etc/ferry/ferryd.yaml";
constexpr absl::Duration kPortPatience = absl::Seconds(2);

void Append(Findings more, Findings& findings) {
  for (Finding& finding : more) findings.push_back(std::move(finding));
}

Finding ClockFinding() {
  timex clock = {};
  const bool in_step = adjtimex(&clock) != -1 && (clock.status & STA_UNSYNC) == 0;
  if (in_step) return {Severity::kOk, "clock", "kept in step", ""};
  return {Severity::kNote, "clock", "not kept in step with others",
          "transfers do not need it; to compare two nodes' logs run NTP or PTP"};
}

// 0 where there is no /proc.
uint64_t PidNamespace() {
  struct stat found = {};
  return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

bool IsGpu(const admin::ClusterDevice& device) {
  return device.device().kind() == ferry::v1::Device::KIND_GPU;
}

// Findings about the routes from this node's first device of a kind to the peer's first one, if
// there are such.
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
  Append(RouteFindings(peer, gpus, routes), findings);
  return absl::OkStatus();
}

absl::Status AskDaemon(const Globals& globals, admin::GetStatusResponse& status,
                       Findings& findings) {
  ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
  admin::ListDevicesResponse devices;
  RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
    return stub.GetStatus(context, admin::GetStatusRequest(), &status);
  }));
  RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
    return stub.ListDevices(context, admin::ListDevicesRequest(), &devices);
  }));
  Append(DaemonFindings(status, Version()), findings);
  Append(GpuFindings(devices, status.pid_namespace(), PidNamespace()), findings);
  for (const admin::Peer& peer : status.peers()) {
    if (peer.state() != "up") continue;
    for (const bool gpus : {false, true}) {
      RETURN_IF_ERROR(AskRoutes(client, devices, peer.node(), gpus, findings));
    }
  }
  return absl::OkStatus();
}

// "": there is none.
std::string ConfigOf(const std::string& named) {
  if (!named.empty()) return named;
  return access(kUsualConfig, R_OK) == 0 ? kUsualConfig : "";
}

// The output of ferryd, which is looked for beside this program and then in PATH, about the
// configuration.
absl::StatusOr<std::string> AskFerryd(const std::string& config, const char* flag) {
  std::error_code none;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", none);
  const std::filesystem::path beside = self.parent_path() / "ferryd";
  SpawnOptions ferryd;
  ferryd.arguments = {access(beside.c_str(), X_OK) == 0 ? beside.string() : "ferryd", "--config",
                      config, flag};
  return RunAndRead(ferryd);
}

// Whether a daemon could start with the configuration, if none serves.
Findings ConfigFindings(const std::string& config, bool serves) {
  Findings findings;
  const absl::StatusOr<std::string> checked = AskFerryd(config, "--check-config");
  if (checked.ok()) {
    findings.push_back({Severity::kOk, "configuration", absl::StrCat(config, " is good"), ""});
  } else {
    const absl::string_view said = absl::StripAsciiWhitespace(checked.status().message());
    findings.push_back({Severity::kWrong, "configuration",
                        absl::StrReplaceAll(said, {{"\n", "; "}}),
                        "mend it, as the daemon's user: `ferryd --config FILE --check-config`"});
  }
  if (serves) return findings;  // the ports are the daemon's own
  const absl::StatusOr<std::string> printed = AskFerryd(config, "--print-config");
  for (const char* const section : {"peer", "metrics"}) {
    const std::string listen = ListenOf(printed.value_or(""), section);
    if (listen.empty()) continue;
    findings.push_back(CouldListenFinding(absl::StrCat(section, ".listen"), listen));
  }
  return findings;
}

Findings PortFindings(const admin::GetStatusResponse& status) {
  Findings findings = {ListensFinding("peer.listen", status.peer_listen(),
                                      "no other node may dial this one", kPortPatience),
                       ListensFinding("metrics.listen", status.metrics_listen(),
                                      "metrics are at admin/metrics.sock alone", kPortPatience)};
  Append(PeerPortFindings(status, kPortPatience), findings);
  return findings;
}

Findings OthersFindings(const Globals& globals, const admin::GetStatusResponse& own,
                        const std::vector<std::string>& others) {
  Findings findings;
  std::vector<admin::GetStatusResponse> statuses = {own};
  for (const std::string& dir : others) {
    Globals there = globals;
    there.runtime_dir = dir;
    admin::GetStatusResponse status;
    absl::StatusOr<AdminClient> client = AdminClient::Open(there);
    absl::Status asked = client.status();
    if (asked.ok()) {
      asked = client->Call([&](auto& stub, auto* context) {
        return stub.GetStatus(context, admin::GetStatusRequest(), &status);
      });
    }
    if (asked.ok()) {
      statuses.push_back(std::move(status));
    } else {
      findings.push_back({Severity::kWrong, absl::StrCat("daemon at ", dir),
                          std::string(asked.message()),
                          "its admin socket must be reached from here; ssh -L brings one of "
                          "another host (docs/operating.md)"});
    }
  }
  Append(LinkFindings(statuses), findings);
  return findings;
}

class DoctorCommand : public Command {
 public:
  DoctorCommand()
      : Command("doctor",
                "What is wrong with this node, or slower than it could be, and what to do; exit "
                "status 8 if something is wrong") {}

  void Define(CLI::App& app) override {
    app.add_option("--config", config_,
                   "Look at this configuration of the daemon, too (where no daemon serves, at "
                   "/etc/ferry/ferryd.yaml if it is there)")
        ->check(CLI::ExistingFile);
    app.add_option("runtime_dirs", others_,
                   "Of other nodes' daemons: ask them too, whether the links between them are up");
  }
  std::string Lacks() const override {
    for (const std::string& dir : others_) {
      if (std::string bad = CheckRuntimeDir(dir); !bad.empty()) return bad;
    }
    return "";
  }

  absl::StatusOr<int> Run(const Globals& globals) override {
    const Findings findings = Examine(globals, config_, others_);
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

  std::string config_;
  std::vector<std::string> others_;
};

}  // namespace

Findings Examine(const Globals& globals, const std::string& config,
                 const std::vector<std::string>& others) {
  Findings findings = SocketFindings(globals.runtime_dir);
  admin::GetStatusResponse status;
  const absl::Status asked = AskDaemon(globals, status, findings);
  if (!asked.ok()) {
    findings.push_back({Severity::kWrong, "daemon", std::string(asked.message()),
                        "`systemctl status ferryd` and `journalctl -u ferryd`, or the log of who "
                        "started it, say why it does not serve"});
  }
  const bool serves = status.pid() != 0;
  if (serves) Append(PortFindings(status), findings);
  Append(OthersFindings(globals, status, others), findings);
  // A daemon that does not let this user ask has its ports, and may have another configuration.
  const std::string file = serves || absl::IsPermissionDenied(asked) ? config : ConfigOf(config);
  if (!file.empty()) Append(ConfigFindings(file, serves), findings);
  const bool has_gpus = IsVersion(status.gpus());
  Append(HostFindings("", status.pid(), has_gpus, IsVersion(status.ucx())), findings);
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
