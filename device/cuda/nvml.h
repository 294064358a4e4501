// SPDX-License-Identifier: Apache-2.0
// The few things NVML knows of a GPU without a context on it. The library is opened at run time and
// its functions are declared here, because NVML's header comes with neither driver nor toolkit
// packages. Any thread; calls take up to milliseconds, so not on control or lanes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace ferry {

class Nvml {
 public:
  // UNAVAILABLE/NOT_READY with what is missing.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library);

  // "580.95.05".
  const std::string& driver_version() const { return driver_version_; }
  struct Memory {
    uint64_t total = 0, free = 0, used = 0;
  };
  // Of the GPU with this UUID as text; nothing if NVML does not know it.
  std::optional<Memory> MemoryOf(const std::string& uuid) const;

 private:
  Nvml() = default;
  int (*by_uuid_)(const char*, void**) = nullptr;
  int (*memory_info_)(void*, Memory*) = nullptr;
  std::string driver_version_;
};

}  // namespace ferry
