// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/comm_cache.h"

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

constexpr absl::Duration kAskAgain = absl::Milliseconds(100);

}  // namespace

const char* CommStateName(CommState state) {
  switch (state) {
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
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool stale = it->second.clique == row.clique && it->second.state == CommState::kFailed;
    it = stale ? entries_.erase(it) : std::next(it);
  }
  Entry entry;
  static_cast<CommRow&>(entry) = row;
  entry.state = CommState::kOpening;
  entry.since = entry.last_used = now;
  entries_.emplace(next_, std::move(entry));
  return next_++;
}

void CommCache::OnOpened(absl::Time now, Id id, uint64_t bytes, absl::Duration took) {
  Entry& entry = entries_.at(id);
  entry.state = CommState::kOpen;
  entry.last_used = now;
  entry.bytes = bytes;
  entry.open_took = took;
  expected_ = bytes;
  ++counts_.opened;
}

void CommCache::OnLaunch(absl::Time now, Id id, uint64_t bytes) {
  Entry& entry = entries_.at(id);
  entry.last_used = now;
  ++entry.groups;
  ++entry.running;
  entry.moved += bytes;
  ++counts_.groups;
  counts_.moved += bytes;
}

void CommCache::OnOver(absl::Time now, Id id) {
  Entry& entry = entries_.at(id);
  entry.last_used = now;
  --entry.running;
}

void CommCache::OnEnding(Id id, std::string error) {
  Entry& entry = entries_.at(id);
  const bool opened = entry.state == CommState::kOpen;
  entry.state = error.empty() ? CommState::kClosing : CommState::kAborting;
  ++(error.empty() ? counts_.closed : opened ? counts_.aborted : counts_.failed);
  entry.error = std::move(error);
}

void CommCache::OnGone(Id id) {
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

std::vector<Clique> CommCache::TakeToEvict(absl::Time now) {
  // Of each GPU what it has, and its idle ones, least recently used first.
  absl::btree_map<GlobalDeviceId, uint64_t> used;
  absl::btree_map<GlobalDeviceId, absl::Time> last;
  std::vector<Entry*> idle;
  for (auto& [id, entry] : entries_) {
    used[entry.device] += entry.state == CommState::kOpening ? expected_ : entry.bytes;
    if (entry.state != CommState::kOpen && entry.state != CommState::kOpening) continue;
    const auto [newest, first] = last.try_emplace(entry.device, entry.last_used);
    newest->second = std::max(newest->second, entry.last_used);
    if (entry.state == CommState::kOpen && entry.running == 0) idle.push_back(&entry);
  }
  beyond_ = std::any_of(used.begin(), used.end(),
                        [&](const auto& device) { return device.second > bytes_per_device_; });
  std::stable_sort(idle.begin(), idle.end(),
                   [](const Entry* a, const Entry* b) { return a->last_used < b->last_used; });
  std::vector<Clique> evict;
  for (Entry* entry : idle) {
    const bool beyond =
        used[entry->device] > bytes_per_device_ && entry->last_used < last[entry->device];
    if (!beyond && now < entry->last_used + idle_) continue;
    used[entry->device] -= entry->bytes;
    if (now < entry->asked + kAskAgain) continue;
    entry->asked = now;
    evict.push_back(entry->clique);
  }
  return evict;
}

absl::Time CommCache::NextEviction() const {
  absl::Time next = absl::InfiniteFuture();
  absl::btree_map<GlobalDeviceId, uint64_t> used;
  for (const auto& [id, entry] : entries_) used[entry.device] += entry.bytes;
  for (const auto& [id, entry] : entries_) {
    if (entry.state != CommState::kOpen || entry.running > 0) continue;
    const absl::Time again = entry.asked + kAskAgain;
    next = std::min(next, std::max(entry.last_used + idle_, again));
    if (used[entry.device] > bytes_per_device_ && entry.asked != absl::InfinitePast()) {
      next = std::min(next, again);
    }
  }
  return next;
}

std::vector<CommRow> CommCache::List() const {
  std::vector<CommRow> rows;
  for (const auto& [id, entry] : entries_) rows.push_back(entry);
  return rows;
}

uint64_t CommCache::BytesOf(GlobalDeviceId device) const {
  uint64_t bytes = 0;
  for (const auto& [id, entry] : entries_) bytes += entry.device == device ? entry.bytes : 0;
  return bytes;
}

}  // namespace ferry
