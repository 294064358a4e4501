// SPDX-License-Identifier: Apache-2.0
// Which daemon owns a global device. Asked many times a transfer, so devices with small ids, which
// almost all are, are found by index. Pure; constant after construction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "base/ids.h"
#include "transfer/types.h"

namespace ferry {

class DeviceOwners {
 public:
  // `owners` outlives this.
  explicit DeviceOwners(const absl::flat_hash_map<GlobalDeviceId, PeerId>& owners)
      : owners_(owners) {
    for (const auto& [device, owner] : owners) {
      if (device.value() >= kByIndex) continue;
      by_index_.resize(std::max<size_t>(by_index_.size(), device.value() + 1));
      by_index_[device.value()] = owner;
    }
  }

  std::optional<PeerId> Find(GlobalDeviceId device) const {
    if (device.value() < by_index_.size()) return by_index_[device.value()];
    const auto entry = owners_.find(device);
    return entry == owners_.end() ? std::nullopt : std::make_optional(entry->second);
  }
  // Of a known device.
  PeerId operator[](GlobalDeviceId device) const {
    const std::optional<PeerId> owner = Find(device);
    FERRY_CHECK(owner.has_value());
    return *owner;
  }

 private:
  static constexpr uint64_t kByIndex = 4096;

  const absl::flat_hash_map<GlobalDeviceId, PeerId>& owners_;
  std::vector<std::optional<PeerId>> by_index_;
};

}  // namespace ferry
