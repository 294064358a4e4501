// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/findings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tools/ferryctl/format.h"

namespace ferry::tools {
namespace {

namespace admin = ferry::admin::v1;

// With fewer descriptors a node with a few jobs runs out: half are reserved for sessions, and an
// arena takes up to 64.
constexpr uint64_t kFewDescriptors = 8192;

std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

bool HasEntries(const std::string& directory) {
  std::error_code error;
  return std::filesystem::exists(directory, error) &&
         !std::filesystem::is_empty(directory, error) && !error;
}

// The soft limit of that name in /proc/PID/limits: "unlimited" or a number.
std::string LimitOf(const std::string& limits, const std::string& name) {
  for (const absl::string_view line : absl::StrSplit(limits, '\n')) {
    if (!absl::StartsWith(line, name)) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line.substr(name.size()), ' ', absl::SkipEmpty());
    return words.empty() ? "" : words.front();
  }
  return "";
}

void LookAtLimits(const std::string& limits, bool pins, Findings& findings) {
  const std::string files = LimitOf(limits, "Max open files");
  uint64_t most = 0;
  const bool few = absl::SimpleAtoi(files, &most) && most < kFewDescriptors;
  findings.push_back(
      {few ? Severity::kWarning : Severity::kOk, "descriptors",
       absl::StrCat("the daemon may open ", files),
       few ? absl::StrCat("LimitNOFILE= of its unit, or ulimit -n: ", kFewDescriptors, " or more")
           : ""});
  const std::string locked = LimitOf(limits, "Max locked memory");
  const bool bounded = pins && locked != "unlimited";
  findings.push_back(
      {bounded ? Severity::kWarning : Severity::kOk, "memlock",
       absl::StrCat("the daemon may lock ", locked, locked == "unlimited" ? "" : " bytes"),
       bounded ? "GPUs and RDMA pin memory: LimitMEMLOCK=infinity of its unit, or "
                 "ulimit -l unlimited"
               : ""});
}

// The bracketed word of "always [madvise] never".
std::string Chosen(const std::string& text) {
  const size_t begin = text.find('['), end = text.find(']');
  return begin == std::string::npos || end == std::string::npos || end < begin
             ? ""
             : text.substr(begin + 1, end - begin - 1);
}

void LookAtHugePages(const std::string& root, Findings& findings) {
  const std::string path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const std::optional<std::string> text = ReadText(root + path);
  const std::string chosen = text ? Chosen(*text) : "";
  if (chosen == "deny" || !text) {
    findings.push_back({Severity::kWarning, "hugepages",
                        text ? absl::StrCat(path, " is deny")
                             : "the kernel has no transparent huge pages of shared memory",
                        "new arenas are slow to fill: echo never > " + path});
  } else {
    findings.push_back({Severity::kOk, "hugepages", "arenas may have them", ""});
  }
}

void LookAtRdma(const std::string& root, bool has_ucx, Findings& findings) {
  const bool adapters = HasEntries(root + "/sys/class/infiniband");
  if (!adapters) {
    findings.push_back({Severity::kOk, "rdma", "this host has no RDMA adapter", ""});
  } else if (!has_ucx) {
    findings.push_back({Severity::kWarning, "rdma", "there are RDMA adapters, and UCX is not open",
                        "see 'ucx' of ferryctl status; transfer.order must name ucx"});
  } else {
    findings.push_back({Severity::kOk, "rdma", "there are RDMA adapters, and UCX is open", ""});
  }
}

void LookAtGpus(const std::string& root, bool has_gpus, Findings& findings) {
  const bool driver = std::filesystem::exists(root + "/dev/nvidiactl");
  if (driver && !has_gpus) {
    findings.push_back({Severity::kWarning, "gpu devices",
                        "this host has a GPU driver, and the daemon has no GPU",
                        "see 'gpus' of ferryctl status; gpus of the configuration; the user of the "
                        "daemon must be let to /dev/nvidia*"});
  } else {
    findings.push_back({Severity::kOk, "gpu devices",
                        driver ? "the daemon has GPUs" : "no GPU: this host has no GPU driver",
                        ""});
  }
}

// A finding about a library that the daemon opens: its name, and what the daemon says of it.
void LookAtLibrary(const std::string& name, const std::string& text, Findings& findings) {
  Finding finding{Severity::kOk, name, text, ""};
  if (!IsVersion(text)) finding.severity = Severity::kNote;
  if (absl::StrContains(text, "transfer.order")) {
    finding.advice = absl::StrCat("nothing, or `transfer.order` with ", name, ", and a restart");
  } else if (!IsVersion(text) && !absl::StartsWith(text, "not opened")) {
    finding.severity = Severity::kWarning;
    finding.advice = absl::StrCat(
        "install it where the daemon's user finds it, or name it: ", "transfer.", name, ".library");
  }
  findings.push_back(std::move(finding));
}

bool IsOwnGpu(const admin::ClusterDevice& device) {
  return device.local() && device.device().kind() == ferry::v1::Device::KIND_GPU;
}

constexpr size_t kPairsShown = 8;

Finding PeerAccessFinding(const admin::ListDevicesResponse& devices) {
  std::vector<std::string> without;
  size_t pairs = 0;
  for (const admin::ClusterDevice& gpu : devices.devices()) {
    const uint64_t id = gpu.device().global_device_id();
    for (const admin::GpuLink& link : gpu.gpu_links()) {
      if (link.global_device_id() < id) continue;  // each pair once
      ++pairs;
      if (!link.has_peer_access() || link.peer_access()) continue;
      without.push_back(absl::StrCat(id, " and ", link.global_device_id()));
    }
  }
  if (pairs == 0) return {Severity::kOk, "peer access", "this daemon has one GPU", ""};
  if (without.empty()) {
    return {Severity::kOk, "peer access", "the GPUs reach one another's memory", ""};
  }
  const size_t more = without.size() - std::min(without.size(), kPairsShown);
  without.resize(without.size() - more);
  return {Severity::kWarning, "peer access",
          absl::StrCat("none between GPUs ", absl::StrJoin(without, ", "),
                       more == 0 ? "" : absl::StrCat(", and ", more, " more pairs"),
                       ": what goes between them goes by way of the host"),
          "`nvidia-smi topo -p2p r` says why; in a virtual machine, or with IOMMU and ACS on, "
          "GPUs of one PCIe switch may be kept apart; MIG instances have none"};
}

Finding IpcFinding(uint64_t daemon_namespace, uint64_t own_namespace) {
  if (daemon_namespace == 0 || own_namespace == 0) {
    return {Severity::kNote, "CUDA IPC", "the PID namespaces are not known",
            "memory by descriptors (ferry_arena_allocate, VMM) needs none"};
  }
  if (daemon_namespace == own_namespace) {
    return {Severity::kOk, "CUDA IPC",
            "memory of cudaMalloc can be handed over: the daemon is in this PID namespace", ""};
  }
  return {Severity::kNote, "CUDA IPC",
          "the daemon is in another PID namespace: memory of cudaMalloc cannot be handed over "
          "from here",
          "memory by descriptors can (Ferry's own arenas, VMM, PyTorch's expandable segments)"};
}

// Versions that differ only in the patch number work together. "" is not known.
bool SameMinor(const std::string& a, const std::string& b) {
  return a.substr(0, a.rfind('.')) == b.substr(0, b.rfind('.'));
}

void LookAtPeer(const admin::Peer& peer, const std::string& version, Findings& findings) {
  Finding finding{Severity::kOk, absl::StrCat("peer ", peer.node()), peer.state(), ""};
  if (!peer.error().empty()) absl::StrAppend(&finding.found, ": ", peer.error());
  if (peer.state() == "refused") {
    finding.severity = Severity::kWarning;
    finding.advice = "the text says which of the two configurations to mend";
  } else if (peer.state() == "lost" || (peer.state() != "up" && !peer.error().empty())) {
    finding.severity = Severity::kWrong;
    // The error tells both daemons what to do: the one that was reached, and the one that was
    // refused.
    if (!absl::StrContains(peer.error(), "link between ")) {
      finding.advice = absl::StrCat("is its daemon up, and ", peer.address(),
                                    " reached from here? its own `ferryctl doctor`");
    }
  } else if (peer.state() != "up") {
    finding.severity = Severity::kNote;
    finding.advice =
        "nobody needed it yet; `ferryctl route` with one of its devices opens the link";
  } else if (peer.draining()) {
    finding.severity = Severity::kNote;
    finding.found = "up, and drains";
  } else if (!peer.version().empty() && !SameMinor(peer.version(), version)) {
    finding.severity = Severity::kWarning;
    finding.found = absl::StrCat("up, of version ", peer.version(), "; this one is ", version);
    finding.advice = "install one minor version on all nodes (docs/versions.md)";
  } else {
    // The error of a link that is up is about `mapped`, which its routes tell.
    finding.found = "up";
  }
  findings.push_back(std::move(finding));
}

}  // namespace

Findings HostFindings(const std::string& root, uint64_t daemon_pid, bool has_gpus, bool has_ucx) {
  Findings findings;
  const bool adapters = HasEntries(root + "/sys/class/infiniband");
  const auto limits = ReadText(absl::StrCat(root, "/proc/", daemon_pid, "/limits"));
  if (daemon_pid != 0 && limits) LookAtLimits(*limits, has_gpus || adapters, findings);
  LookAtHugePages(root, findings);
  LookAtRdma(root, has_ucx, findings);
  LookAtGpus(root, has_gpus, findings);
  return findings;
}

Findings DaemonFindings(const admin::GetStatusResponse& status, const std::string& own_version) {
  Findings findings;
  findings.push_back({status.draining() ? Severity::kWarning : Severity::kOk, "daemon",
                      absl::StrCat(status.node(), status.draining() ? " drains" : " serves"),
                      status.draining() ? "ferryctl undrain, unless it is to stop" : ""});
  const bool same = status.version() == own_version;
  findings.push_back(
      {same ? Severity::kOk : Severity::kWarning, "version",
       same ? own_version
            : absl::StrCat("ferryd is ", status.version(), ", ferryctl ", own_version),
       same ? "" : "install both of one version, and restart the daemon"});
  const bool has_gpus = IsVersion(status.gpus());
  findings.push_back({has_gpus ? Severity::kOk : Severity::kNote, "gpus",
                      has_gpus
                          ? status.gpus()
                          : absl::StrCat("no GPU: ", absl::StripPrefix(status.gpus(), "none: ")),
                      has_gpus ? ""
                               : "nothing where there is none; else `nvidia-smi` must work for the "
                                 "daemon's user, and devices.gpus name it"});
  LookAtLibrary("ucx", status.ucx(), findings);
  LookAtLibrary("nccl", status.nccl(), findings);
  if (status.transfers_failed() > 0) {
    findings.push_back(
        {Severity::kNote, "transfers",
         absl::StrCat(HumanCount(status.transfers_failed()), " failed and ",
                      HumanCount(status.transfers_ok()), " went well since the start"),
         "ferry_transfer_failures_total of the metrics, and the log, say why"});
  }
  for (const admin::Peer& peer : status.peers()) LookAtPeer(peer, status.version(), findings);
  return findings;
}

bool IsVersion(const std::string& text) { return !text.empty() && absl::ascii_isdigit(text[0]); }

Findings GpuFindings(const admin::ListDevicesResponse& devices, uint64_t daemon_namespace,
                     uint64_t own_namespace) {
  if (!std::any_of(devices.devices().begin(), devices.devices().end(), IsOwnGpu)) {
    return {{Severity::kOk, "peer access", "no GPU", ""},
            {Severity::kOk, "CUDA IPC", "no GPU", ""}};
  }
  return {PeerAccessFinding(devices), IpcFinding(daemon_namespace, own_namespace)};
}

Findings RouteFindings(const std::string& peer, bool gpus,
                       const admin::ExplainRouteResponse& routes) {
  const std::string check = absl::StrCat(gpus ? "GPU routes to " : "routes to ", peer);
  std::vector<std::string> available;
  Findings missing;
  for (const admin::RouteOption& option : routes.options()) {
    const std::string route = RouteText(option.route());
    if (option.available()) {
      available.push_back(route);
      continue;
    }
    // Routes that could be had between these two nodes, and that are faster than those there are.
    const bool one_host = route == "mapped" && !absl::StrContains(option.reason(), "another host");
    const bool of_gpus = route == "nccl" && gpus;
    if (one_host || of_gpus) {
      const bool apart =
          one_host && absl::StrContains(option.reason(), "No such file or directory");
      missing.push_back({Severity::kWarning, check,
                         absl::StrCat("no ", route, ": ", option.reason()),
                         apart ? "transfers take a slower route; daemons in containers of one host "
                                 "share memory if each one's runtime_dir is mounted in the other's "
                                 "too, at the same path"
                               : "transfers take a slower route"});
    }
  }
  Findings findings;
  if (available.empty()) {
    findings.push_back({Severity::kWrong, check, "none: no transfer between them can go",
                        "`ferryctl route` says why for each; transfer.order of both nodes"});
  } else {
    findings.push_back({Severity::kOk, check, absl::StrJoin(available, ", "), ""});
  }
  findings.insert(findings.end(), missing.begin(), missing.end());
  return findings;
}

}  // namespace ferry::tools
