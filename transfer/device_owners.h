// SPDX-License-Identifier: Apache-2.0
// Which daemon owns a global device. The engine asks many times for each transfer, so devices with
// small ids, which almost all have, are found by index. Pure. Home: control (owned by
// TransferEngine).
//
// A device whose node has left is not found any more, but its last owner is remembered: transfers
// with the device may still wait for a lane's answer, and texts name the owner.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "base/home.h"
#include "base/ids.h"
#include "transfer/types.h"

namespace ferry {

class DeviceOwners {
 public:
  explicit DeviceOwners(const absl::flat_hash_map<GlobalDeviceId, PeerId>& owners) {
    for (const auto& [device, owner] : owners) Set(device, owner);
  }

  void Set(GlobalDeviceId device, PeerId owner) {
    home_.Check();
    if (device.value() >= kByIndex) {
      others_.insert_or_assign(device, Entry{owner, true});
      return;
    }
    if (by_index_.size() <= device.value()) by_index_.resize(device.value() + 1);
    by_index_[device.value()] = Entry{owner, true};
  }
  // The device's node has left; the device must have an owner.
  void Drop(GlobalDeviceId device) {
    home_.Check();
    Look(device)->known = false;
  }

  std::optional<PeerId> Find(GlobalDeviceId device) const {
    const Entry* const entry = const_cast<DeviceOwners*>(this)->Look(device);
    return entry == nullptr || !entry->known ? std::nullopt : std::make_optional(entry->owner);
  }
  // The owner, or last owner, of a device that has or had one.
  PeerId operator[](GlobalDeviceId device) const {
    const Entry* const entry = const_cast<DeviceOwners*>(this)->Look(device);
    FERRY_CHECK(entry != nullptr);
    return entry->owner;
  }

 private:
  static constexpr uint64_t kByIndex = 4096;
  struct Entry {
    PeerId owner;
    bool known = true;
  };

  // Null if the device has never had an owner.
  Entry* Look(GlobalDeviceId device) {
    if (device.value() < kByIndex) {
      if (device.value() >= by_index_.size()) return nullptr;
      std::optional<Entry>& entry = by_index_[device.value()];
      return entry ? &*entry : nullptr;
    }
    const auto entry = others_.find(device);
    return entry == others_.end() ? nullptr : &entry->second;
  }

  std::vector<std::optional<Entry>> by_index_;
  absl::flat_hash_map<GlobalDeviceId, Entry> others_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
