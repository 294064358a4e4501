// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr int kSuccess = 0;             // NVML_SUCCESS
constexpr unsigned kVersionBytes = 80;  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
constexpr unsigned kMostLinks = 64;     // NVML_NVLINK_MAX_LINKS is 18, and grows with the hardware
constexpr unsigned kEnabled = 1;        // NVML_FEATURE_ENABLED
constexpr unsigned kRemoteGpu = 0;      // NVML_NVLINK_DEVICE_TYPE_GPU
constexpr unsigned kRemoteSwitch = 2;   // NVML_NVLINK_DEVICE_TYPE_SWITCH
constexpr unsigned kP2pNvlink = 2;      // NVML_P2P_CAPS_INDEX_NVLINK
constexpr unsigned kP2pOk = 0;          // NVML_P2P_STATUS_OK
constexpr unsigned kP2pUnknown = 6;     // NVML_P2P_STATUS_UNKNOWN
constexpr unsigned kScopeNode = 0;      // NVML_AFFINITY_SCOPE_NODE
constexpr unsigned kNodeWords = 16;     // of a set of NUMA nodes: 1,024, as many as Linux has

}  // namespace

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& path) {
  const auto unavailable = [&](absl::string_view why) {
    return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
                 absl::StrCat("open ", path, ": ", why));
  };
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed
  if (library == nullptr) {
    return unavailable(absl::StripPrefix(dlerror(), absl::StrCat(path, ": ")));
  }
  std::string missing;
  const auto find = [&](const char* name) {
    void* const found = dlsym(library, name);
    if (found == nullptr && missing.empty()) missing = name;
    return found;
  };
  std::unique_ptr<Nvml> nvml(new Nvml());
  const auto init = reinterpret_cast<int (*)()>(find("nvmlInit_v2"));
  const auto version =
      reinterpret_cast<int (*)(char*, unsigned)>(find("nvmlSystemGetDriverVersion"));
  nvml->by_uuid_ = reinterpret_cast<decltype(nvml->by_uuid_)>(find("nvmlDeviceGetHandleByUUID"));
  nvml->memory_info_ =
      reinterpret_cast<decltype(nvml->memory_info_)>(find("nvmlDeviceGetMemoryInfo"));
  if (!missing.empty()) return unavailable(absl::StrCat("it has no ", missing));
  const auto optional = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
  };
  optional("nvmlDeviceGetPciInfo_v3", nvml->pci_info_);
  optional("nvmlDeviceGetNvLinkState", nvml->link_state_);
  optional("nvmlDeviceGetNvLinkRemoteDeviceType", nvml->link_remote_type_);
  optional("nvmlDeviceGetNvLinkRemotePciInfo_v2", nvml->link_remote_pci_);
  optional("nvmlDeviceGetP2PStatus", nvml->p2p_status_);
  optional("nvmlDeviceGetMemoryAffinity", nvml->memory_affinity_);
  if (const int error = init(); error != kSuccess) {
    return unavailable(absl::StrCat("nvmlInit: error ", error));
  }
  char text[kVersionBytes] = {};
  if (version(text, kVersionBytes) == kSuccess) nvml->driver_version_ = text;
  return nvml;
}

std::optional<Nvml::Memory> Nvml::MemoryOf(const std::string& uuid) const {
  void* device = nullptr;
  Memory memory;
  if (by_uuid_(uuid.c_str(), &device) != kSuccess || memory_info_(device, &memory) != kSuccess) {
    return std::nullopt;
  }
  return memory;
}

Nvml::Links Nvml::LinksOf(void* device) const {
  Links links;
  if (link_state_ == nullptr || link_remote_type_ == nullptr) return links;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    unsigned state = 0;
    if (link_state_(device, link, &state) != kSuccess)
      break;  // that was the last, or there is none
    unsigned type = 0;
    if (state != kEnabled || link_remote_type_(device, link, &type) != kSuccess) continue;
    Pci remote = {};
    if (type == kRemoteSwitch) {
      ++links.to_switches;
    } else if (type == kRemoteGpu && link_remote_pci_ != nullptr &&
               link_remote_pci_(device, link, &remote) == kSuccess) {
      links.to_gpus.push_back(remote);
    }
  }
  return links;
}

std::vector<std::optional<int>> Nvml::NvlinksTo(const std::string& uuid,
                                                absl::Span<const std::string> others) const {
  std::vector<std::optional<int>> counts(others.size());
  void* device = nullptr;
  if (p2p_status_ == nullptr || by_uuid_(uuid.c_str(), &device) != kSuccess) return counts;
  const Links links = LinksOf(device);
  for (size_t i = 0; i < others.size(); ++i) {
    void* other = nullptr;
    unsigned status = kP2pUnknown;
    if (by_uuid_(others[i].c_str(), &other) != kSuccess ||
        p2p_status_(device, other, kP2pNvlink, &status) != kSuccess || status == kP2pUnknown) {
      continue;
    }
    if (status != kP2pOk) {
      counts[i] = 0;
      continue;
    }
    Pci pci = {};
    const bool placed = pci_info_ != nullptr && pci_info_(other, &pci) == kSuccess;
    const auto direct =
        std::count_if(links.to_gpus.begin(), links.to_gpus.end(), [&](const Pci& remote) {
          return placed && remote.domain == pci.domain && remote.bus == pci.bus &&
                 remote.device == pci.device;
        });
    // Through switches each of them leads to every GPU. Neither: they are joined, NVML hides how.
    const int up = direct > 0 ? static_cast<int>(direct) : links.to_switches;
    if (up > 0) counts[i] = up;
  }
  return counts;
}

std::optional<int> Nvml::NumaNodeOf(const std::string& uuid) const {
  constexpr unsigned kBits = 8 * sizeof(unsigned long);
  void* device = nullptr;
  unsigned long nodes[kNodeWords] = {};
  if (memory_affinity_ == nullptr || by_uuid_(uuid.c_str(), &device) != kSuccess ||
      memory_affinity_(device, kNodeWords, nodes, kScopeNode) != kSuccess) {
    return std::nullopt;
  }
  for (unsigned node = 0; node < kNodeWords * kBits; ++node) {
    if ((nodes[node / kBits] >> (node % kBits) & 1) != 0) return static_cast<int>(node);
  }
  return std::nullopt;
}

}  // namespace ferry
