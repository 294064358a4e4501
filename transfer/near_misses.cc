// SPDX-License-Identifier: Apache-2.0
#include "transfer/near_misses.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/nearest.h"

namespace ferry {
namespace {

bool SameDevices(const MatchKey& a, const MatchKey& b) {
  return a.source == b.source && a.destination == b.destination;
}

// Bytes from their beginning.
size_t InCommon(absl::string_view a, absl::string_view b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(ends.first - a.begin());
}

}  // namespace

bool NearMisses::ByDevices::operator()(const Entry& a, const Entry& b) const {
  return std::tie(a.side, a.key->source, a.key->destination, a.key->key, a.key->domain) <
         std::tie(b.side, b.key->source, b.key->destination, b.key->key, b.key->domain);
}

bool NearMisses::ByKey::operator()(const Entry& a, const Entry& b) const {
  return std::tie(a.side, a.key->key, a.key->domain, a.key->source, a.key->destination) <
         std::tie(b.side, b.key->key, b.key->domain, b.key->source, b.key->destination);
}

void NearMisses::Insert(const Entry& entry) {
  by_devices_.erase(entry);
  by_key_.erase(entry);
  by_devices_.insert(entry);
  by_key_.insert(entry);
}

void NearMisses::Add(Side side, const MatchKey& key) {
  home_.Check();
  Insert({side, &key});
}

void NearMisses::Remove(Side side, const MatchKey& key) {
  home_.Check();
  by_devices_.erase({side, &key});
  by_key_.erase({side, &key});
}

void NearMisses::Remember(absl::Time now, Side side, const MatchKey& key) {
  home_.Check();
  BeginTurn(now);
  if (memories_left_ == 0) return;
  --memories_left_;
  while (!remembered_.empty() &&
         (remembered_.size() == kRemembered || remembered_.front().ended + kMemory <= now)) {
    ForgetOldest();
  }
  remembered_.push_back({side, key, now});
  const Remembered& kept = remembered_.back();
  Insert({side, &kept.key, now});
}

void NearMisses::ForgetOldest() {
  const Remembered& oldest = remembered_.front();
  // Unless such a half waits, or has ended, since.
  const auto entry = by_devices_.find({oldest.side, &oldest.key});
  if (entry != by_devices_.end() && entry->key == &oldest.key) Remove(oldest.side, oldest.key);
  remembered_.pop_front();
}

std::vector<NearMisses::Miss> NearMisses::Find(absl::Time now, Side side, const MatchKey& wanted,
                                               const Counts& counts) const {
  home_.Check();
  std::vector<Miss> found;
  const Entry probe{side, &wanted};
  const auto add = [&](Kind kind, const Entry& entry) {
    const bool waits = entry.ended == absl::InfiniteFuture();
    if (!waits && entry.ended + kMemory <= now) return false;
    if (counts && !counts(*entry.key)) return false;
    found.push_back({kind, *entry.key, waits ? std::nullopt : std::make_optional(entry.ended)});
    return true;
  };
  if (const auto same = by_devices_.find(probe); same != by_devices_.end()) {
    add(Kind::kNothing, *same);
  }
  const MatchKey turned{wanted.domain, wanted.destination, wanted.source, wanted.key};
  const Side facing = side == Side::kSend ? Side::kReceive : Side::kSend;
  if (const auto same = by_devices_.find({facing, &turned}); same != by_devices_.end()) {
    add(Kind::kSameSide, *same);
  }
  const MatchKey any_device{wanted.domain, GlobalDeviceId(), GlobalDeviceId(), wanted.key};
  size_t steps = kSteps;
  for (auto entry = by_key_.lower_bound({side, &any_device});
       entry != by_key_.end() && entry->side == side && entry->key->key == wanted.key &&
       entry->key->domain == wanted.domain && found.size() < kMost && steps-- > 0;
       ++entry) {
    const bool source = entry->key->source == wanted.source;
    const bool destination = entry->key->destination == wanted.destination;
    if (source != destination) add(Kind::kDevices, *entry);
  }
  const MatchKey any_domain{"", wanted.source, wanted.destination, wanted.key};
  steps = kSteps;
  for (auto entry = by_devices_.lower_bound({side, &any_domain});
       entry != by_devices_.end() && entry->side == side && SameDevices(*entry->key, wanted) &&
       entry->key->key == wanted.key && found.size() < kMost && steps-- > 0;
       ++entry) {
    if (entry->key->domain != wanted.domain && add(Kind::kDomain, *entry)) break;
  }
  FindKeys(now, side, wanted, counts, found);
  return found;
}

void NearMisses::FindKeys(absl::Time now, Side side, const MatchKey& wanted, const Counts& counts,
                          std::vector<Miss>& found) const {
  const auto first = by_devices_.lower_bound({side, &wanted});
  auto before = first, after = first;
  const auto near = [&](const Entry& entry) {
    return entry.side == side && SameDevices(*entry.key, wanted);
  };
  bool named = false;
  Miss others{Kind::kOtherKeys, wanted, std::nullopt};
  const auto look = [&](const Entry& entry) {
    const MatchKey& key = *entry.key;
    const bool waits = entry.ended == absl::InfiniteFuture();
    if (key.key == wanted.key || key.domain != wanted.domain) return;
    if ((!waits && entry.ended + kMemory <= now) || (counts && !counts(key))) return;
    if (Alike(key.key, wanted.key)) {
      found.push_back({Kind::kKey, key, waits ? std::nullopt : std::make_optional(entry.ended)});
      named = true;
    } else if (waits) {
      ++others.others;
    }
  };
  // The farther from where it would be, the less they begin alike: either way.
  for (size_t steps = kSteps; found.size() < kMost; --steps) {
    const bool has_before = before != by_devices_.begin() && near(*std::prev(before));
    const bool has_after = after != by_devices_.end() && near(*after);
    if (!has_before && !has_after) break;
    others.at_least = steps == 0;
    if (others.at_least) break;
    const bool forward =
        has_after && (!has_before || InCommon(after->key->key, wanted.key) >=
                                         InCommon(std::prev(before)->key->key, wanted.key));
    look(forward ? *after++ : *--before);
  }
  if (!named && others.others > 0 && found.size() < kMost) found.push_back(std::move(others));
}

void NearMisses::BeginTurn(absl::Time now) {
  if (now < turn_ends_) return;
  turn_ends_ = now + kTurn;
  searches_left_ = kSearches;
  additions_left_ = kAdditions;
  memories_left_ = kMemories;
}

bool NearMisses::TakeSearch(absl::Time now) {
  home_.Check();
  BeginTurn(now);
  return searches_left_ > 0 && searches_left_-- > 0;
}

bool NearMisses::TakeAddition() {
  home_.Check();
  return additions_left_ > 0 && additions_left_-- > 0;
}

}  // namespace ferry
