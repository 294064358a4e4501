// SPDX-License-Identifier: Apache-2.0
// What NVML knows of a GPU without a context on it. The library is opened at run time and its
// functions are declared here, because NVML's header comes neither with the driver's packages nor
// with the toolkit's. Any thread; calls take up to milliseconds, so they are not for control and
// lanes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace ferry {

class Nvml {
 public:
  // UNAVAILABLE/NOT_READY, which says what is missing.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library);

  // "580.95.05".
  const std::string& driver_version() const { return driver_version_; }
  struct Memory {
    uint64_t total = 0, free = 0, used = 0;
  };
  // Memory of the GPU with this UUID, given as text; nothing if NVML does not know it.
  std::optional<Memory> MemoryOf(const std::string& uuid) const;
  // By other GPU: how many NVLinks are up between the two, directly or through switches; 0 if the
  // GPU reaches the other one without NVLink or not at all; nothing if NVML does not say (an older
  // library, a virtual GPU, a MIG instance).
  std::vector<std::optional<int>> NvlinksTo(const std::string& uuid,
                                            absl::Span<const std::string> others) const;
  // The NUMA node whose memory is nearest to the GPU; nothing if NVML does not say.
  std::optional<int> NumaNodeOf(const std::string& uuid) const;

 private:
  struct Pci {  // nvmlPciInfo_t
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
  };
  struct Links {  // NVLinks that are up
    int to_switches = 0;
    std::vector<Pci> to_gpus;
  };

  Nvml() = default;
  Links LinksOf(void* device) const;

  int (*by_uuid_)(const char*, void**) = nullptr;
  int (*memory_info_)(void*, Memory*) = nullptr;
  // Null if the library does not have the function.
  int (*pci_info_)(void*, Pci*) = nullptr;
  int (*link_state_)(void*, unsigned, unsigned*) = nullptr;
  int (*link_remote_type_)(void*, unsigned, unsigned*) = nullptr;
  int (*link_remote_pci_)(void*, unsigned, Pci*) = nullptr;
  int (*p2p_status_)(void*, void*, unsigned, unsigned*) = nullptr;
  int (*memory_affinity_)(void*, unsigned, unsigned long*, unsigned) = nullptr;
  std::string driver_version_;
};

}  // namespace ferry
