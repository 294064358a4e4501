// SPDX-License-Identifier: Apache-2.0
// The devices on which this process has arenas, in any of its sessions. The other half of a
// transfer with such a device is likely this process's to post. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace ferry::client {

// Counts one arena on `device` while the object lives.
class DeviceUse {
 public:
  explicit DeviceUse(uint64_t device) : device_(device) {
    std::lock_guard lock(All().mutex);
    ++All().count[device];
  }
  ~DeviceUse() {
    std::lock_guard lock(All().mutex);
    const auto found = All().count.find(device_);
    if (--found->second == 0) All().count.erase(found);
  }
  DeviceUse(const DeviceUse&) = delete;
  DeviceUse& operator=(const DeviceUse&) = delete;

  static bool InUse(uint64_t device) {
    std::lock_guard lock(All().mutex);
    return All().count.count(device) != 0;
  }

 private:
  struct Uses {
    std::mutex mutex;
    std::map<uint64_t, uint64_t> count;
  };
  static Uses& All() {
    static Uses* const all = new Uses;  // handles may outlive every static
    return *all;
  }

  const uint64_t device_;
};

}  // namespace ferry::client
