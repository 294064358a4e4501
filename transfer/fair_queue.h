// SPDX-License-Identifier: Apache-2.0
// FairQueue says whose bytes are moved next where several sessions wait for one lane. Pure. Home:
// its owner's (the lane, for a transport).
//
// Sessions share equally: each has a clock that goes on with the bytes it was served, and the one
// whose clock is behind is next (start-time fair queueing). A session that comes, or comes back,
// starts at the clock of whoever is served then: it neither waits for those who were there, nor
// makes up for the time it was away. So while two sessions both wait, what they were served differs
// by at most one piece of each, whatever the sizes of their items, and nobody starves.
//
// Priority, -100 to 100: within a session the higher one is first. Against other sessions it is a
// weight of 2^(priority/50), a quarter to four times the share, and no more: every client may claim
// to be urgent. Within a session's priority what is small (kSmallBytes) comes before what is large,
// else first come, first served.
//
// Invariant: an item waits from Add until it is served to its end or removed. Each call takes
// O(log n) of what waits.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "transfer/types.h"

namespace ferry {

class FairQueue {
 public:
  static constexpr uint64_t kSmallBytes = uint64_t{1} << 20;
  // What an item costs at least each time it is served: tiny ones cost calls, not bytes.
  static constexpr uint64_t kLeastCost = uint64_t{4} << 10;

  // What can wait. Its owner keeps it where it is while it does; one queue at a time.
  class Item {
   public:
    // `session` is whose share the bytes are: its id, or anything else that names it.
    Item(uint64_t session, int32_t priority, uint64_t bytes)
        : session_(session), priority_(priority), left_(bytes), large_(bytes > kSmallBytes) {}
    Item(const Item&) = delete;
    Item& operator=(const Item&) = delete;
    uint64_t session() const { return session_; }
    uint64_t left() const { return left_; }  // bytes not served yet
    bool large() const { return large_; }    // more than kSmallBytes at first
    bool waiting() const { return waiting_; }

   private:
    friend class FairQueue;
    const uint64_t session_;
    const int32_t priority_;
    uint64_t left_;
    const bool large_;
    bool waiting_ = false;
    bool returned_ = false;
    uint64_t number_ = 0;  // in order of Add
  };

  void Add(Item& item);
  // Of an item that was served to its end `left` bytes are left: it waits for those, before all
  // else of its session, which is charged only what was moved.
  void Return(Item& item, uint64_t left);
  // Takes out an item before its end; does nothing if it does not wait.
  void Remove(Item& item);
  void Clear();

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  // Whether an item of another session waits.
  bool HasOthers(uint64_t session) const {
    return turns_.size() > 1 || (turns_.size() == 1 && turns_.begin()->second != session);
  }
  // The item whose turn it is, null if nothing waits.
  Item* Next() const;
  // `bytes` of Next() are being moved (at most what is left of it). It has gone if those were its
  // last.
  void Serve(uint64_t bytes);

 private:
  // The order within a session: first the smallest.
  struct Place {
    int32_t priority;  // negated
    bool large;
    uint64_t number;
    Item* item;
    auto operator<=>(const Place&) const = default;
  };
  struct Flow {
    uint64_t clock = 0;
    absl::btree_set<Place> places;
  };
  using Turn = std::pair<uint64_t, uint64_t>;  // a flow's clock, and whose it is

  static Place PlaceOf(Item& item) {
    if (item.returned_) return {-kMaxPriority - 1, false, item.number_, &item};
    return {-item.priority_, item.large_, item.number_, &item};
  }
  // The flow of a session that has an item from now on.
  Flow& Enter(uint64_t session);
  // Takes out the item of a flow, which goes to `resting` with its last one.
  void Leave(Flow& flow, Item& item);

  absl::flat_hash_map<uint64_t, Flow> flows_;  // by session
  absl::btree_set<Turn> turns_;                // flows with items
  absl::btree_set<Turn> resting_;  // flows without, whose clock is still ahead of `now_`
  uint64_t now_ = 0;               // the clock of the flow that was served last, before it was
  uint64_t next_number_ = 0;
  size_t size_ = 0;
};

}  // namespace ferry
