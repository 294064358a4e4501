// SPDX-License-Identifier: Apache-2.0
#include "client/device_use.h"

#include <map>
#include <mutex>

namespace ferry::client {
namespace {

struct Uses {
  std::mutex mutex;
  std::map<uint64_t, uint64_t> count;
};
Uses& All() {
  static Uses* const all = new Uses;  // handles may outlive every static
  return *all;
}

}  // namespace

DeviceUse::DeviceUse(uint64_t device) : device_(device) {
  std::lock_guard lock(All().mutex);
  ++All().count[device];
}

DeviceUse::~DeviceUse() {
  std::lock_guard lock(All().mutex);
  if (--All().count[device_] == 0) All().count.erase(device_);
}

bool DeviceUse::InUse(uint64_t device) {
  std::lock_guard lock(All().mutex);
  return All().count.count(device) != 0;
}

}  // namespace ferry::client
