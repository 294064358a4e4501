// SPDX-License-Identifier: Apache-2.0
// Who waits until when: the deadlines of halves and offers, soonest first. Most are set by batches
// to one time, by ascending ids, and taken out again long before it, in about that order; so those
// of one time and owner are a list, in which either is a few steps whatever else waits. Pure: no
// clock, no thread. Home: control (owned by TransferEngine).
//
// Invariant: every list has an entry that is not over, and, if it is long, at most as many that
// are.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "base/ids.h"

namespace ferry {

struct Due {
  int64_t nanos = 0;
  PeerId peer;  // whose id `transfer` is
  TransferId transfer;
  auto operator<=>(const Due&) const = default;
};

class Deadlines {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // Which is not in it.
  void Add(const Due& due);
  // Which is in it.
  void Remove(const Due& due);
  // kNever if there is none.
  int64_t first() const {
    return std::min(lists_.empty() ? kNever : lists_.begin()->first.nanos,
                    others_.empty() ? kNever : others_.begin()->nanos);
  }
  // The first one, if it is not after `nanos`; taken out.
  std::optional<Due> TakeDue(int64_t nanos);
  size_t size() const { return size_; }

 private:
  struct When {
    int64_t nanos = 0;
    PeerId peer;
    auto operator<=>(const When&) const = default;
  };
  struct Entry {
    TransferId transfer;
    bool over = false;
  };
  struct List {
    std::vector<Entry> entries;  // ascending
    size_t first = 0;            // those before it are over
    size_t left = 0;             // that are not
  };
  using Lists = absl::btree_map<When, List>;

  // One of the list's is over.
  void TakeOut(Lists::iterator list, Entry& entry);

  Lists lists_;
  absl::btree_set<Due> others_;  // those that came behind a higher id of their list
  size_t size_ = 0;
};

}  // namespace ferry
