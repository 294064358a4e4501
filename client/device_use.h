// SPDX-License-Identifier: Apache-2.0
// Which devices this process has arenas on, in any of its sessions: the other half of a transfer
// with one of these is likely this process's to post. Any thread.
#pragma once

#include <cstdint>

namespace ferry::client {

// Counts for `device` while the object lives.
class DeviceUse {
 public:
  explicit DeviceUse(uint64_t device);
  ~DeviceUse();
  DeviceUse(const DeviceUse&) = delete;
  DeviceUse& operator=(const DeviceUse&) = delete;

  static bool InUse(uint64_t device);

 private:
  const uint64_t device_;
};

}  // namespace ferry::client
