// SPDX-License-Identifier: Apache-2.0
// LaneReservations grants the lanes of this daemon to groups that need several lanes at once, of
// several daemons. Pure. Home: control (owned by GroupBook).
//
// NCCL locks up if two devices launch two groups in opposite orders, or if a ring of cliques is
// launched so that each group waits for the next. The rules that exclude it:
//   1. A group asks for its lanes in ascending device id and asks for the next only once it holds
//      the one before. A lane is held by one group at a time; who asks meanwhile waits in order.
//   2. When it holds all its lanes the group is committed: it joins the launch queue of each, and
//      only then lets that lane go to the next asker.
//   3. A lane launches its queue in order. Queue and holder together are kDepth at most.
// Why nothing locks up:
//   - Orders agree. If G precedes H in some queue, H got that lane after G let it go, so G held all
//     its lanes before H did. "Held all its lanes before" is an order in time and has no cycle.
//     Hence of all committed groups that are not over, the first is first in all its queues and can
//     run; it ends, or its launch deadline or a lost link ends it.
//   - Grants come. A committed group waits for no grant. A group that holds lanes waits only for a
//     lane with a higher id. Either the queue of that lane is full: the queue moves. Or another
//     group holds that lane: this group waits only for lanes with still higher ids.
//   - Depth is no order. kDepth is 2 so that the next group can gather its lanes while the one
//     before runs. A lane has one holder: two holders might both be committed, on two lanes in
//     opposite orders.
// A group that is aborted or orphaned releases its lanes, wherever it stands.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "base/home.h"
#include "base/ids.h"

namespace ferry {

class LaneReservations {
 public:
  using Ticket = uint64_t;  // the caller's name of a group, never 0
  static constexpr size_t kDepth = 2;

  // Waits for the lane. A ticket asks once for a lane.
  void Ask(GlobalDeviceId lane, Ticket ticket);
  // The tickets that were granted a lane after the last call of TakeGranted. Each holds the lane
  // until Commit or Release.
  std::vector<Ticket> TakeGranted();
  // All lanes of the group are held: it joins this lane's queue, and the lane can be held anew.
  void Commit(GlobalDeviceId lane, Ticket ticket);
  // The group is over or will not be: whether it waits, holds the lane or is in its queue.
  void Release(GlobalDeviceId lane, Ticket ticket);

  // The first of the lane's queue: what runs there now.
  std::optional<Ticket> Head(GlobalDeviceId lane) const;
  // Whether nobody holds, waits for or uses any lane.
  bool idle() const { return lanes_.empty(); }

 private:
  struct Lane {
    std::deque<Ticket> waiting;
    Ticket holder = 0;
    absl::InlinedVector<Ticket, kDepth> queue;
  };
  void Grant(Lane& lane);

  absl::flat_hash_map<GlobalDeviceId, Lane> lanes_;  // those in use
  std::vector<Ticket> granted_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
