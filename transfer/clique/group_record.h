// SPDX-License-Identifier: Apache-2.0
// One group at this end, from asking for our lane until its launch is answered. Plain data. Home:
// control (owned by GroupBook).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "transfer/clique/group.h"
#include "transfer/clique/load.h"
#include "transfer/deadlines.h"

namespace ferry {

struct GroupRecord {
  enum class State : uint8_t {
    kAsking,    // for our lane
    kGranting,  // at the leader: cut, and the follower is asked for its lane
    kLaunched,
  };
  // One chunk of the group, and the load here that it belongs to.
  struct Carried {
    Load* load = nullptr;  // pinned: it stays while it has a chunk out
    Chunk chunk;
  };

  uint64_t id = 0;  // ours, also its ticket for lanes
  Clique clique;
  PeerId peer;
  bool leads = false;
  State state = State::kAsking;
  uint32_t attempt = 0;
  uint64_t number = 0;           // the clique's count of groups; both ends know it
  std::vector<Carried> carried;  // none yet while a leader asks
  uint64_t bytes = 0;            // of `carried`
  // At a follower: the indices of the message's chunks that are left out, ascending.
  std::vector<uint32_t> refused;
  // The reason for which the group's attempt is being aborted. OK: no abort.
  absl::Status why;
  int64_t timer = Deadlines::kNever;  // Unix nanoseconds
  absl::Time began;                   // launched, and the first in its lane's queue
  bool late = false;                  // the group has run for longer than `group_deadline` here
  bool late_there = false;            // the follower has reported the same

  bool launched() const { return state == State::kLaunched; }
  GlobalDeviceId lane() const { return leads ? clique.low : clique.high; }
};

}  // namespace ferry
