// SPDX-License-Identifier: Apache-2.0
// GroupLeader keeps the cliques that this daemon leads: what waits for the next group of each, when
// that group is due, its number, and the attempt of the communicator it goes on. Pure: time is an
// argument. Home: control (owned by Cliques).
//
// A clique whose communicator is not open has it opened first: no lane waits for that. Then a group
// is due at once if no other of its clique is on its way, else when it is full or its oldest pair
// has waited long enough: a lone transfer never waits for company, and company gathers while there
// is something to wait for. A group is cut when its first lane is granted. An abort ends groups
// that are cut and touches no waiting pair.
//
// Invariants: a clique has at most one group that asks for lanes. Numbers rise by one until the
// follower is lost. An attempt that has ended is never used again, also after a loss: the next
// opening is the next attempt. Openings that fail one after the other are further and further
// apart.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/clique/group.h"
#include "transfer/clique/group_cutter.h"

namespace ferry {

class GroupLeader {
 public:
  struct Numbered {
    uint32_t attempt = 0;
    uint64_t number = 0;
    std::vector<Chunk> chunks;
  };
  static constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
  static constexpr absl::Duration kLongestBackoff = absl::Seconds(5);

  explicit GroupLeader(const GroupCutter::Options& options) : options_(options) {}

  // False if the pair waits already.
  bool Add(absl::Time now, const Clique& clique, const PairName& pair, uint64_t bytes,
           int32_t priority, bool unstaged = false);
  // While the clique is held, a group that is not full waits for more pairs, even if no other group
  // of the clique is on its way; at most for GroupCutter::Options::age.
  void Hold(const Clique& clique, bool held);
  // Takes back what is left of a pair. False if nothing is.
  bool Remove(const Clique& clique, const PairName& pair);

  struct Due {
    // Cliques whose communicator the caller must open, with the attempt. The caller answers by
    // OnOpened or EndAttempt.
    std::vector<std::pair<Clique, uint32_t>> open;
    // Cliques whose next group is due: the caller asks for its lane, then calls Cut.
    std::vector<Clique> ask;
    // Cliques whose attempt has run out (RunOut): the caller ends the attempt.
    std::vector<std::pair<Clique, uint32_t>> close;
  };
  Due TakeDue(absl::Time now);
  // When TakeDue will have something because of time alone.
  absl::Time NextDue() const;
  // The communicator shall be open, though nothing waits for it.
  void Warm(const Clique& clique);
  // False if `attempt` is not being opened.
  bool OnOpened(const Clique& clique, uint32_t attempt);
  // After EndAttempt: it could not be opened.
  void BackOff(absl::Time now, const Clique& clique);
  // The lane was granted, and has so much room (see GroupCutter). None if all that waited was
  // taken back, or the attempt has ended.
  std::optional<Numbered> Cut(const Clique& clique, uint64_t room = 0);
  // A group that was cut is over here.
  void OnOver(const Clique& clique);

  // True if `attempt` is in use; from here on it is not.
  bool EndAttempt(const Clique& clique, uint32_t attempt);
  // The attempt in use, if no group of it is on its way or could be: what an eviction may end.
  std::optional<uint32_t> IdleAttempt(const Clique& clique) const;
  // No group is cut on this attempt any more: TakeDue names it when none is on its way. What waits
  // goes on the next one.
  void RunOut(const Clique& clique, uint32_t attempt);
  // The follower is lost: nothing waits or asks any more, and the attempt has ended. The caller
  // still calls OnOver for each group that was cut.
  void Drop(const Clique& clique);

  size_t waiting() const { return waiting_; }  // pairs

 private:
  struct Led {
    explicit Led(const GroupCutter::Options& options) : cutter(options) {}
    GroupCutter cutter;
    uint32_t attempt = 1;
    enum { kClosed, kOpening, kOpen } state = kClosed;
    bool warm = false;  // wanted without a pair
    bool running_out = false;
    bool held = false;
    absl::Time not_before = absl::InfinitePast();
    absl::Duration backoff = kFirstBackoff;
    uint64_t number = 0;
    bool asked = false;     // TakeDue named it, Cut was not called
    size_t on_the_way = 0;  // cut, not over
    absl::Time timer = absl::InfiniteFuture();
  };
  Led& LedOf(const Clique& clique);
  void Close(Led& led);
  void WakeAt(const Clique& clique, Led& led, absl::Time when);

  const GroupCutter::Options options_;
  absl::flat_hash_map<Clique, Led> led_;
  absl::btree_set<Clique> changed_;  // may be due for another reason than age
  absl::btree_set<std::pair<absl::Time, Clique>> timers_;
  size_t waiting_ = 0;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
