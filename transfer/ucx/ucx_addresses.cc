// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_addresses.h"

#include <algorithm>

#include "transfer/ucx/ucx_records.h"

namespace ferry {

size_t UcxAddresses::Add(const std::string& kind, const std::string& address) {
  MutexLock lock(mutex_);
  addresses_.push_back({kind, address});
  return addresses_.size() - 1;
}

void UcxAddresses::Set(size_t index, const std::string& address) {
  MutexLock lock(mutex_);
  addresses_[index].address = address;
}

void UcxAddresses::CountClosing(const LinkKey& key) {
  MutexLock lock(mutex_);
  ++closings_[key];
}

bool UcxAddresses::CatchUp(const LinkKey& key, uint64_t theirs) {
  MutexLock lock(mutex_);
  if (theirs == 0) return false;
  uint64_t& ours = closings_[key];
  return std::exchange(ours, std::max(ours, theirs)) < theirs;
}

std::vector<UcxAddressBlob> UcxAddresses::For(PeerId peer) const {
  MutexLock lock(mutex_);
  std::vector<UcxAddressBlob> open;
  for (const UcxAddressBlob& blob : addresses_) {
    if (!blob.address.empty()) open.push_back(blob);
  }
  for (const auto& [key, closings] : closings_) {
    if (key.first != peer) continue;
    for (UcxAddressBlob& blob : open) {
      if (blob.kind != kUcxShm) blob.closings.emplace(key.second, closings);
    }
  }
  return open;
}

bool UcxAddresses::Reaches(const std::string& kind) const {
  MutexLock lock(mutex_);
  return std::any_of(addresses_.begin(), addresses_.end(), [&](const auto& blob) {
    return blob.kind == kind && (kind != kUcxShm || !blob.address.empty());
  });
}

}  // namespace ferry
