// SPDX-License-Identifier: Apache-2.0
#include "transfer/matcher.h"

namespace ferry {

TransferMatcher::Result TransferMatcher::Add(const MatchKey& key, Half half) {
  auto [entry, added] = waiting_.try_emplace(key, half);
  if (added) return {Outcome::kWaiting, {}};
  const Half other = entry->second;
  if (other.side == half.side) return {Outcome::kKeyInUse, other};
  waiting_.erase(entry);
  return {Outcome::kMatched, other};
}

std::optional<Half> TransferMatcher::Find(const MatchKey& key) const {
  auto entry = waiting_.find(key);
  if (entry == waiting_.end()) return std::nullopt;
  return entry->second;
}

bool TransferMatcher::Remove(const MatchKey& key, Half half) {
  auto entry = waiting_.find(key);
  if (entry == waiting_.end() || !(entry->second == half)) return false;
  waiting_.erase(entry);
  return true;
}

}  // namespace ferry
