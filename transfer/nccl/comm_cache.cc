// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/comm_cache.h"

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

constexpr absl::Duration kAskAgain = absl::Milliseconds(100);
constexpr uint64_t kAlike = 4;  // times

bool Alike(uint64_t a, uint64_t b) { return a <= kAlike * b && b <= kAlike * a; }

}  // namespace

const char* CommStateName(CommState state) {
  switch (state) {
    case CommState::kWaiting:
      return "waiting";
    case CommState::kOpening:
      return "opening";
    case CommState::kOpen:
      return "open";
    case CommState::kClosing:
      return "closing";
    case CommState::kAborting:
      return "aborting";
    case CommState::kFailed:
      return "failed";
  }
  return "";
}

CommCache::Id CommCache::Open(absl::Time now, const CommRow& row) {
  home_.Check();
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool stale = it->second.clique == row.clique && it->second.state == CommState::kFailed;
    it = stale ? entries_.erase(it) : std::next(it);
  }
  Entry entry;
  static_cast<CommRow&>(entry) = row;
  entry.state = CommState::kWaiting;
  entry.since = entry.last_used = now;
  entries_.emplace(next_, std::move(entry));
  return next_++;
}

absl::btree_map<GlobalDeviceId, uint64_t> CommCache::Used() const {
  absl::btree_map<GlobalDeviceId, uint64_t> used;
  for (const auto& [id, entry] : entries_) {
    used[entry.device] += entry.state == CommState::kOpening ? expected_ : entry.bytes;
  }
  return used;
}

bool CommCache::ComesOrGoes(const Entry& entry) {
  return entry.state == CommState::kOpening || entry.state == CommState::kClosing ||
         entry.state == CommState::kAborting;
}

void CommCache::Disturb(Id id) {
  Entry& entry = entries_.at(id);
  for (auto& [other_id, other] : entries_) {
    if (other_id == id || other.device != entry.device || !ComesOrGoes(other)) continue;
    entry.disturbed = other.disturbed = true;
  }
}

absl::Time CommCache::AloneUntil(const Entry& entry) const {
  return !sure_ && entry.state == CommState::kOpening ? entry.begun + kAlone : absl::InfinitePast();
}

std::vector<CommCache::Id> CommCache::TakeToOpen(absl::Time now) {
  home_.Check();
  std::vector<Id> open;
  absl::btree_map<GlobalDeviceId, uint64_t> used = Used();
  absl::btree_map<GlobalDeviceId, bool> full, taken;
  for (const auto& [id, entry] : entries_) {
    taken[entry.device] |= entry.state != CommState::kWaiting && entry.state != CommState::kFailed;
    full[entry.device] |= now < AloneUntil(entry);
  }
  for (auto& [id, entry] : entries_) {  // as they came
    if (entry.state != CommState::kWaiting || full[entry.device]) continue;
    if (taken[entry.device] && used[entry.device] + expected_ > bytes_per_device_) {
      full[entry.device] = true;
      continue;
    }
    taken[entry.device] = true;
    used[entry.device] += expected_;
    entry.state = CommState::kOpening;
    entry.begun = now;
    full[entry.device] = now < AloneUntil(entry);
    Disturb(id);
    open.push_back(id);
  }
  return open;
}

bool CommCache::Believe(const Entry& entry, uint64_t went) {
  if (went == 0) return false;
  if (!sure_) return true;  // there is nothing better
  if (entry.disturbed) return false;
  if (Alike(went, expected_)) {
    odd_ = 0;
    return true;
  }
  return Alike(went, std::exchange(odd_, went));
}

uint64_t CommCache::OnOpened(absl::Time now, Id id, uint64_t went, absl::Duration took) {
  home_.Check();
  Entry& entry = entries_.at(id);
  if (entry.state != CommState::kClosing) entry.state = CommState::kOpen;
  entry.last_used = entry.opened = now;
  entry.open_took = took;
  if (Believe(entry, went)) {
    expected_ = went;
    sure_ |= !entry.disturbed;
  }
  ++counts_.opened;
  return entry.bytes = expected_;
}

void CommCache::OnLaunch(absl::Time now, Id id, uint64_t bytes) {
  home_.Check();
  Entry& entry = entries_.at(id);
  entry.last_used = now;
  ++entry.groups;
  ++entry.running;
  entry.moved += bytes;
  ++counts_.groups;
  counts_.moved += bytes;
}

void CommCache::OnOver(absl::Time now, Id id) {
  home_.Check();
  Entry& entry = entries_.at(id);
  entry.last_used = now;
  --entry.running;
}

void CommCache::OnClosing(Id id) {
  home_.Check();
  entries_.at(id).state = CommState::kClosing;
}

void CommCache::OnEnding(Id id, std::string error) {
  home_.Check();
  Entry& entry = entries_.at(id);
  const bool opened = entry.state == CommState::kOpen || entry.state == CommState::kClosing;
  entry.state = error.empty() ? CommState::kClosing : CommState::kAborting;
  ++(error.empty() ? counts_.closed : opened ? counts_.aborted : counts_.failed);
  entry.error = std::move(error);
  Disturb(id);
}

void CommCache::OnGone(Id id) {
  home_.Check();
  const auto found = entries_.find(id);
  Entry& entry = found->second;
  const bool newer = std::any_of(entries_.begin(), entries_.end(), [&](const auto& other) {
    return other.first > id && other.second.clique == entry.clique;
  });
  if (entry.error.empty() || newer) {
    entries_.erase(found);
    return;
  }
  entry.state = CommState::kFailed;
  entry.bytes = 0;
}

std::vector<std::pair<Clique, bool>> CommCache::TakeToEvict(absl::Time now) {
  home_.Check();
  looked_ = now;
  // Of each GPU what it has and what waits for room, and its open ones, least recently used first,
  // the idle ones before all others.
  absl::btree_map<GlobalDeviceId, uint64_t> used = Used();
  absl::btree_map<GlobalDeviceId, bool> waited;
  absl::btree_map<GlobalDeviceId, absl::Time> last;
  std::vector<Entry*> open;
  for (auto& [id, entry] : entries_) {
    if (entry.state == CommState::kWaiting && !std::exchange(waited[entry.device], true)) {
      used[entry.device] += expected_;
    }
    if (entry.state == CommState::kClosing || entry.state == CommState::kAborting) {
      used[entry.device] -= entry.bytes;  // comes back without more being done
    }
    if (entry.state != CommState::kOpen && entry.state != CommState::kOpening) continue;
    const auto [newest, first] = last.try_emplace(entry.device, entry.last_used);
    newest->second = std::max(newest->second, entry.last_used);
    if (entry.state == CommState::kOpen) open.push_back(&entry);
  }
  beyond_ = std::any_of(used.begin(), used.end(),
                        [&](const auto& device) { return device.second > bytes_per_device_; });
  std::stable_sort(open.begin(), open.end(), [](const Entry* a, const Entry* b) {
    return std::make_pair(a->running > 0, a->last_used) <
           std::make_pair(b->running > 0, b->last_used);
  });
  std::vector<std::pair<Clique, bool>> evict;
  for (Entry* entry : open) {
    const bool busy = entry->running > 0;
    const bool waits = waited[entry->device];
    const bool beyond = used[entry->device] > bytes_per_device_ &&
                        (waits || entry->last_used < last[entry->device]) &&
                        (!busy || (waits && now >= entry->opened + kTurn));
    const bool unused = !busy && now >= entry->last_used + idle_;
    if (!beyond && !unused) continue;
    used[entry->device] -= entry->bytes;
    if (now < entry->asked + kAskAgain) continue;
    entry->asked = now;
    // Who waits may have its turn also where what is idle here is not at the other end.
    evict.emplace_back(entry->clique, waits && now >= entry->opened + kTurn);
  }
  return evict;
}

absl::Time CommCache::LookFor(absl::Time due) const {
  return due > looked_ ? due : looked_ + kAskAgain;
}

absl::Time CommCache::NextLook() const {
  home_.Check();
  absl::Time next = absl::InfiniteFuture();
  absl::btree_map<GlobalDeviceId, uint64_t> used;
  absl::btree_map<GlobalDeviceId, bool> waited;
  for (const auto& [id, entry] : entries_) {
    used[entry.device] += entry.bytes;
    if (entry.state == CommState::kWaiting) waited[entry.device] = true;
  }
  for (const auto& [id, entry] : entries_) {
    if (waited.contains(entry.device) && !sure_ && entry.state == CommState::kOpening) {
      next = std::min(next, LookFor(AloneUntil(entry)));
    }
    if (entry.state != CommState::kOpen) continue;
    const absl::Time again = entry.asked + kAskAgain;
    if (waited.contains(entry.device)) {
      const absl::Time turn = entry.running > 0 ? entry.opened + kTurn : again;
      next = std::min(next, LookFor(std::max(again, turn)));
    }
    // A busy one too: nobody looks because it becomes idle.
    next = std::min(next, LookFor(std::max(entry.last_used + idle_, again)));
    if (entry.running > 0) continue;
    if (used[entry.device] > bytes_per_device_ && entry.asked != absl::InfinitePast()) {
      next = std::min(next, LookFor(again));
    }
  }
  return next;
}

std::vector<CommRow> CommCache::List() const {
  home_.Check();
  std::vector<CommRow> rows;
  for (const auto& [id, entry] : entries_) rows.push_back(entry);
  return rows;
}

uint64_t CommCache::BytesOf(GlobalDeviceId device) const {
  home_.Check();
  uint64_t bytes = 0;
  for (const auto& [id, entry] : entries_) bytes += entry.device == device ? entry.bytes : 0;
  return bytes;
}

}  // namespace ferry
