// SPDX-License-Identifier: Apache-2.0
// GroupBook keeps the groups of this daemon that ask for a lane or run: their places in the queues
// of our lanes (LaneReservations), and until when each may take. It decides nothing of what they
// carry.
//
// A group that is launched has its deadline from when it is the first in its lane's queue.
//
// Pure: time is an argument. Home: control (owned by Cliques).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/clique/clique_context.h"
#include "transfer/clique/group_record.h"
#include "transfer/clique/reservations.h"

namespace ferry {

class GroupBook {
 public:
  explicit GroupBook(const CliqueContext& context) : context_(context) {}

  // A group that has yet to ask for its lane. It stays where it is until Erase.
  GroupRecord& Add(const Clique& clique, PeerId peer, bool leads);
  void Ask(const GroupRecord& group) {
    home_.Check();
    lanes_.Ask(group.lane(), group.id);
  }
  // The groups that were granted our lane after the last call.
  std::vector<GroupRecord*> TakeGranted();
  // Both lanes are granted: the group joins our lane's queue.
  void Launch(GroupRecord& group);
  // The group gives its lane back, and is gone from the book. The next one of the queue begins.
  std::unique_ptr<GroupRecord> Erase(uint64_t id);

  GroupRecord* Find(uint64_t id) const;  // null: it is over
  // The group that we lead and this follower knows by its number; null if there is none.
  GroupRecord* FindLed(PeerId follower, const Clique& clique, uint64_t number,
                       GroupRecord::State state) const;
  // By id, so in the order in which they came.
  template <typename Wanted>
  std::vector<GroupRecord*> All(Wanted wanted) const {
    std::vector<GroupRecord*> found;
    for (const auto& [id, group] : groups_) {
      if (wanted(*group)) found.push_back(group.get());
    }
    return found;
  }
  template <typename Wanted>
  bool Any(Wanted wanted) const {
    for (const auto& [id, group] : groups_) {
      if (wanted(*group)) return true;
    }
    return false;
  }
  bool LaneIsBusy(GlobalDeviceId lane) const { return lanes_.Head(lane).has_value(); }
  size_t size() const { return groups_.size(); }

  // --- Time.

  void SetTimer(GroupRecord& group, absl::Duration after);
  void StopTimer(GroupRecord& group);
  // A group whose timer is over, and stopped; null if there is none.
  GroupRecord* TakeLate();
  // When TakeLate will have something: Unix nanoseconds, Deadlines::kNever for never.
  int64_t NextTimer() const;

 private:
  void Begin(GroupRecord& group);

  const CliqueContext& context_;
  absl::btree_map<uint64_t, std::unique_ptr<GroupRecord>> groups_;
  LaneReservations lanes_;
  absl::btree_set<std::pair<int64_t, uint64_t>> timers_;
  uint64_t next_id_ = 1;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
