// SPDX-License-Identifier: Apache-2.0
#include "transfer/matcher.h"

namespace ferry {

TransferMatcher::Result TransferMatcher::Add(const HashedKey& key, Half half) {
  auto& waiting = waiting_.Of(key);
  auto [entry, added] = waiting.try_emplace(key, half);
  if (added) return {Outcome::kWaiting, {}};
  const Half other = entry->second;
  if (other.side == half.side) return {Outcome::kKeyInUse, other};
  waiting.erase(entry);
  return {Outcome::kMatched, other};
}

std::optional<Half> TransferMatcher::Find(const HashedKey& key) const {
  const auto& waiting = waiting_.Of(key);
  auto entry = waiting.find(key);
  if (entry == waiting.end()) return std::nullopt;
  return entry->second;
}

bool TransferMatcher::Remove(const HashedKey& key, Half half) {
  auto& waiting = waiting_.Of(key);
  auto entry = waiting.find(key);
  if (entry == waiting.end() || !(entry->second == half)) return false;
  waiting.erase(entry);
  return true;
}

}  // namespace ferry
