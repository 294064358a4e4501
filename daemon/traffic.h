// SPDX-License-Identifier: Apache-2.0
// What has moved since the start: by the device here, the device at the other end and the route,
// and by session. Two looks at it make rates. Home: control. Owner: TransferDriver.
//
// A transfer counts when it is over. A prepared one counts with each firing of its batch: of those
// that may still be fired the firings are asked for when somebody looks, because lanes fire them
// unseen by control.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "daemon/moved.h"
#include "transfer/engine.h"

namespace ferry {

class SessionTable;

class Traffic {
 public:
  // By what transfers are counted: our device, the device at the other end, and the route.
  using Way = std::tuple<GlobalDeviceId, GlobalDeviceId, Route>;
  using Ways = absl::btree_map<Way, Moved>;
  // The transfers in flight at one state: how many, and when the oldest of them was posted.
  struct Standing {
    uint64_t count = 0;
    absl::Time oldest = absl::InfiniteFuture();
  };
  struct View {
    Ways ways;
    // Bytes and firings of prepared batches that may still be fired, by session. A session's total
    // is this and Session::moved.
    absl::flat_hash_map<SessionId, Moved> fired_of_sessions;
    std::array<Standing, TransferEngine::kStateNames.size()> states;  // by State
    std::vector<TransferId> oldest;  // without prepared ones that may be fired; oldest first
    absl::btree_map<GlobalDeviceId, uint64_t> launched;  // by the device here
    std::array<uint64_t, kRoutes> launched_by_route = {};
    // Bytes of firings alone, by route: sent, received.
    std::array<Moved, kRoutes> fired = {};
  };

  // Counts a transfer that is over; returns what it has moved. `firings`: of a prepared transfer,
  // how many firings of its batch are over.
  Moved OnEnded(const Ended& ended, uint64_t firings);
  // Goes over everything in flight. View::oldest has at most `oldest` transfers.
  View Look(const TransferEngine& engine, SessionTable& sessions, size_t oldest = 0) const;

 private:
  Ways ways_;
  std::array<Moved, kRoutes> fired_ = {};  // of prepared ones that are over
};

}  // namespace ferry
