// SPDX-License-Identifier: Apache-2.0
#include "transfer/deadlines.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ferry {
namespace {

// Shorter lists are left as they are.
constexpr size_t kWorthwhile = 64;

}  // namespace

void Deadlines::Add(const Due& due) {
  home_.Check();
  ++size_;
  List& list = lists_[{due.nanos, due.peer}];
  if (!list.entries.empty() && list.entries.back().transfer >= due.transfer) {
    others_.insert(due);
    return;
  }
  list.entries.push_back({due.transfer});
  ++list.left;
}

void Deadlines::Remove(const Due& due) {
  home_.Check();
  if (const auto list = lists_.find({due.nanos, due.peer}); list != lists_.end()) {
    std::vector<Entry>& entries = list->second.entries;
    auto entry = entries.begin() + static_cast<std::ptrdiff_t>(list->second.first);
    if (entry->transfer != due.transfer) {
      entry = std::lower_bound(
          entry, entries.end(), due.transfer,
          [](const Entry& other, TransferId transfer) { return other.transfer < transfer; });
    }
    if (entry != entries.end() && entry->transfer == due.transfer && !entry->over) {
      return TakeOut(list, *entry);
    }
  }
  --size_;
  FERRY_CHECK(others_.erase(due) == 1);
}

std::optional<Due> Deadlines::TakeDue(int64_t nanos) {
  home_.Check();
  if (first() > nanos || size_ == 0) return std::nullopt;
  const auto list = lists_.begin();
  if (list != lists_.end()) {
    Entry& entry = list->second.entries[list->second.first];
    const Due due{list->first.nanos, list->first.peer, entry.transfer};
    if (others_.empty() || due < *others_.begin()) {
      TakeOut(list, entry);
      return due;
    }
  }
  --size_;
  const Due due = *others_.begin();
  others_.erase(others_.begin());
  return due;
}

void Deadlines::TakeOut(Lists::iterator list, Entry& entry) {
  --size_;
  entry.over = true;
  auto& [entries, first, left] = list->second;
  if (--left == 0) {
    lists_.erase(list);
    return;
  }
  while (entries[first].over) ++first;
  if (entries.size() < kWorthwhile || left > entries.size() / 2) return;
  // So the few of a large batch that stay do not keep the memory of all.
  entries.erase(
      std::remove_if(entries.begin(), entries.end(), [](const Entry& other) { return other.over; }),
      entries.end());
  entries.shrink_to_fit();
  first = 0;
}

}  // namespace ferry
