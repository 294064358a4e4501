// SPDX-License-Identifier: Apache-2.0
// Decides whose bytes are moved next where several sessions wait for one lane. Pure. Home: its
// owner's (the lane, for a transport).
//
// Sessions share equally (start-time fair queueing). Each session has a clock that advances with
// the bytes that it was served, and the session whose clock is behind is next. A session that
// comes, or comes back, starts at the clock of the session that is being served. So it does not
// wait for those who were there before, and does not make up for the time that it was away. While
// two sessions both wait, what they were served differs by at most one piece of each, whatever the
// sizes of their items, and no session starves. What bytes are is the owner's choice: where they
// are an estimate, Charge corrects it when the cost is known.
//
// Priority is -100 to 100. Within a session the item of higher priority is first. Against other
// sessions priority is a weight of 2^(priority/50), a quarter to four times the share and no more:
// every client may claim to be urgent. Within one session and priority small items (up to
// kSmallBytes) are before large ones; else first come, first served.
//
// Invariant: an item waits from Add() until it is served to its end or removed. Each call takes
// O(log n) of the n waiting items.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "base/home.h"
#include "transfer/types.h"

namespace ferry {

class FairQueue {
 public:
  static constexpr uint64_t kSmallBytes = uint64_t{1} << 20;
  // The least that an item is charged each time it is served: tiny items cost calls, not bytes.
  static constexpr uint64_t kLeastCost = uint64_t{4} << 10;

  // What waits. Its owner must not move it while it waits; it is in one queue at a time.
  class Item {
   public:
    // `session` says whose share the bytes are: a session's id, or anything else that names one.
    Item(uint64_t session, int32_t priority, uint64_t bytes)
        : session_(session), priority_(priority), left_(bytes), large_(bytes > kSmallBytes) {}
    Item(const Item&) = delete;
    Item& operator=(const Item&) = delete;
    uint64_t session() const { return session_; }
    uint64_t left() const { return left_; }  // bytes that are not served yet
    bool large() const { return large_; }    // had more than kSmallBytes at first
    bool waiting() const { return waiting_; }

   private:
    friend class FairQueue;
    const uint64_t session_;
    const int32_t priority_;
    uint64_t left_;
    const bool large_;
    bool waiting_ = false;
    bool returned_ = false;
    uint64_t number_ = 0;  // in the order of Add()
  };

  void Add(Item& item);
  // An item was served to its end, but `left` bytes of it were not moved. It waits for those before
  // all else of its session, which is charged only for what was moved.
  void Return(Item& item, uint64_t left);
  // An item was served `served`, by an estimate, and turned out to have cost `cost`: its session is
  // charged that instead. Nobody is charged while nothing waits.
  void Charge(const Item& item, uint64_t served, uint64_t cost);
  // Takes an item out before its end; does nothing if it does not wait.
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
  // `bytes` of Next() are being moved, at most what is left of it. If nothing is left the item is
  // taken out.
  void Serve(uint64_t bytes);

 private:
  // The order of items within a session: the smallest is first.
  struct Place {
    int32_t priority;  // negated
    bool large;
    uint64_t number;
    Item* item;
    auto operator<=>(const Place&) const = default;
  };
  // The items of one session.
  struct Flow {
    uint64_t clock = 0;
    absl::btree_set<Place> places;
  };
  using Turn = std::pair<uint64_t, uint64_t>;  // a flow's clock, and its session

  static Place PlaceOf(Item& item) {
    if (item.returned_) return {-kMaxPriority - 1, false, item.number_, &item};
    return {-item.priority_, item.large_, item.number_, &item};
  }
  // The flow of a session that has an item from now on.
  Flow& Enter(uint64_t session);
  // Takes the item out of a flow. With its last item the flow goes to `resting_`.
  void Leave(Flow& flow, Item& item);

  absl::flat_hash_map<uint64_t, Flow> flows_;  // by session
  absl::btree_set<Turn> turns_;                // flows with items
  absl::btree_set<Turn> resting_;              // flows without items whose clock is ahead of `now_`
  uint64_t now_ = 0;  // clock of the flow that was served last, before it was served
  uint64_t next_number_ = 0;
  size_t size_ = 0;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
