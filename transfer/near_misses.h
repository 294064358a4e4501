// SPDX-License-Identifier: Apache-2.0
// Finds what waits instead of a half that never came: a half that differs in one respect. It also
// remembers halves that ended by their deadline recently, since the two ends of a near miss do not
// end at the same time. Pure: time is an argument. Home: control (owned by LongWaits).
//
// Only halves that have waited for a while are added: two ordered sets cost more than a match.
// Invariant: there is at most one entry for a side and a MatchKey.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/types.h"

namespace ferry {

class NearMisses {
 public:
  static constexpr size_t kMost = 3;           // misses that one half is told of
  static constexpr size_t kSteps = 64;         // entries that one search looks at in each set
  static constexpr size_t kRemembered = 1024;  // halves that have ended
  static constexpr absl::Duration kMemory = absl::Minutes(10);  // how long those are remembered
  // In each turn (kTurn) at most so many searches, halves that are added for the sake of a search,
  // and halves that are remembered.
  static constexpr size_t kSearches = 64;
  static constexpr size_t kAdditions = 512;
  static constexpr size_t kMemories = 64;
  static constexpr absl::Duration kTurn = absl::Milliseconds(10);

  // How a near miss differs, the likeliest to be meant first.
  enum class Kind { kNothing, kSameSide, kDevices, kDomain, kKey, kOtherKeys };
  struct Miss {
    Kind kind = Kind::kNothing;
    MatchKey key;
    std::optional<absl::Time> ended;  // by its deadline; not set: it waits
    // kOtherKeys: how many halves wait; a lower bound if `at_least`, because the search did not see
    // all.
    size_t others = 0;
    bool at_least = false;
    bool operator==(const Miss&) const = default;
  };
  using Counts = std::function<bool(const MatchKey&)>;

  // A half waits. `key` must neither move nor change until Remove().
  void Add(Side side, const MatchKey& key);
  void Remove(Side side, const MatchKey& key);
  // A half, removed before, has ended by its deadline. Of many in one turn only the first are
  // remembered.
  void Remember(absl::Time now, Side side, const MatchKey& key);

  // What there is of `side` in place of a half of `wanted`, at most kMost:
  //  - this half itself, which has ended or came too late;
  //  - a half of the other side, of the same domain and key, between the same devices in the other
  //    direction (kSameSide): both ends send, or both receive;
  //  - a half of the same domain and key, with another device at one end;
  //  - a half of the same devices and key in another domain, at most one;
  //  - a half of the same domain and devices under a key that may be meant (base/nearest.h): of two
  //    keys the one is nearer that is the same for longer from the beginning;
  //  - if there is none of these: how many wait there under other keys.
  // If `counts` is given, only halves for which it is true.
  std::vector<Miss> Find(absl::Time now, Side side, const MatchKey& wanted,
                         const Counts& counts = nullptr) const;

  // Takes one of this turn's searches; false if none is left.
  bool TakeSearch(absl::Time now);
  // Takes one of this turn's additions, for a half that has not waited for long; false if none is
  // left.
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
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
