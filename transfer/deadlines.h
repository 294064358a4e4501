// SPDX-License-Identifier: Apache-2.0
// The deadlines of halves and offers, soonest first. Most deadlines are set by batches: to one
// time, by ascending ids, and removed long before that time, in about the same order. So the
// deadlines of one time and owner are a list, in which an addition or a removal takes a few steps
// however many wait. Pure: no clock, no thread. Home: control (owned by HalfTables and
// LongWaits).
//
// Invariant: every list has an entry that is not over. A long list has no more entries that are
// over than entries that are not.
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
#include "base/home.h"
#include "base/ids.h"

namespace ferry {

struct Due {
  int64_t nanos = 0;  // Unix nanoseconds
  PeerId peer;        // the daemon that `transfer` is an id of
  TransferId transfer;
  auto operator<=>(const Due&) const = default;
};

class Deadlines {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // `due` must not be there yet.
  void Add(const Due& due);
  // `due` must be there.
  void Remove(const Due& due);
  // The soonest time; kNever if there is none.
  int64_t first() const {
    return std::min(lists_.empty() ? kNever : lists_.begin()->first.nanos,
                    others_.empty() ? kNever : others_.begin()->nanos);
  }
  // Takes out the first deadline if it is not after `nanos`.
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
    size_t first = 0;            // entries before this one are over
    size_t left = 0;             // entries that are not over
  };
  using Lists = absl::btree_map<When, List>;

  // An entry of the list is over.
  void TakeOut(Lists::iterator list, Entry& entry);

  Lists lists_;
  absl::btree_set<Due> others_;  // deadlines that came after a higher id of their list
  size_t size_ = 0;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
