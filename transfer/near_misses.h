// SPDX-License-Identifier: Apache-2.0
// NearMisses finds what waits instead of a half that never came: alike in all but one respect. It
// also remembers what has ended by its deadline of late, since the two ends of a near miss do not
// end at one time. Pure: time is an argument. Home: control (owned by TransferEngine).
//
// Who has waited for a while is in it, not everybody: two ordered sets cost more than a match.
// Invariant: of a side and a MatchKey it has one entry at most.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "transfer/types.h"

namespace ferry {

class NearMisses {
 public:
  static constexpr size_t kMost = 3;           // that one half is told of
  static constexpr size_t kSteps = 64;         // entries that one search looks at in each set
  static constexpr size_t kRemembered = 1024;  // halves that have ended
  static constexpr absl::Duration kMemory = absl::Minutes(10);  // and for how long
  // In each time of kTurn: searches, halves that may be added for their sake, and those that are
  // remembered.
  static constexpr size_t kSearches = 64;
  static constexpr size_t kAdditions = 512;
  static constexpr size_t kMemories = 64;
  static constexpr absl::Duration kTurn = absl::Milliseconds(10);

  // How it differs, the likeliest to be meant first.
  enum class Kind { kNothing, kDevices, kDomain, kKey, kOtherKeys };
  struct Miss {
    Kind kind = Kind::kNothing;
    MatchKey key;
    std::optional<absl::Time> ended;  // by its deadline; none: it waits
    // kOtherKeys: how many wait; that many at least if the search has not seen all.
    size_t others = 0;
    bool at_least = false;
    bool operator==(const Miss&) const = default;
  };
  using Counts = std::function<bool(const MatchKey&)>;

  // A half waits; `key` stays as and where it is until Remove.
  void Add(Side side, const MatchKey& key);
  void Remove(Side side, const MatchKey& key);
  // A half, removed before, has ended by its deadline. Of many in a turn the first ones.
  void Remember(absl::Time now, Side side, const MatchKey& key);

  // What there is of `side` instead of a half of `wanted`, at most kMost:
  //  - this half itself, which has ended or came too late;
  //  - of the same domain and key, with another device at one end;
  //  - of the same devices and key, in another domain: one;
  //  - of the same domain and devices, under a key that may be meant (base/nearest.h): the longer
  //    two keys are the same from their beginning, the nearer they are;
  //  - if there is none: how many wait there under keys of something else.
  // If given, only what `counts`.
  std::vector<Miss> Find(absl::Time now, Side side, const MatchKey& wanted,
                         const Counts& counts = nullptr) const;

  // Whether one more search fits into this turn.
  bool TakeSearch(absl::Time now);
  // And one more addition, of who has not waited for long.
  bool TakeAddition();

  size_t size() const { return by_devices_.size(); }

 private:
  struct Entry {
    Side side = Side::kSend;
    const MatchKey* key = nullptr;
    absl::Time ended = absl::InfiniteFuture();
  };
  struct ByDevices {
    bool operator()(const Entry& a, const Entry& b) const;
  };
  struct ByKey {
    bool operator()(const Entry& a, const Entry& b) const;
  };
  struct Remembered {
    Side side = Side::kSend;
    MatchKey key;
    absl::Time ended;
  };
  void FindKeys(absl::Time now, Side side, const MatchKey& wanted, const Counts& counts,
                std::vector<Miss>& found) const;
  void BeginTurn(absl::Time now);
  void Insert(const Entry& entry);
  void ForgetOldest();

  absl::btree_set<Entry, ByDevices> by_devices_;
  absl::btree_set<Entry, ByKey> by_key_;
  std::deque<Remembered> remembered_;  // the oldest first
  absl::Time turn_ends_ = absl::InfinitePast();
  size_t searches_left_ = 0;
  size_t additions_left_ = 0;
  size_t memories_left_ = 0;
};

}  // namespace ferry
