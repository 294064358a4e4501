// SPDX-License-Identifier: Apache-2.0
// Counts what has moved since the daemon's start: by the device here, the device at the other end
// and the route, and by session. The difference of two Views makes rates. Home: control. Owner:
// TransferDriver.
//
// A transfer is counted when it is over. A prepared transfer counts with each firing of its batch.
// Lanes fire prepared batches unseen by control, so the firings of a batch that may still be fired
// are read when somebody looks.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/moved.h"
#include "transfer/engine_view.h"
#include "transfer/outbox.h"

namespace ferry {

class SessionTable;

class Traffic {
 public:
  // The key of the counts: our device, the device at the other end, and the route.
  using Way = std::tuple<GlobalDeviceId, GlobalDeviceId, Route>;
  using Ways = absl::btree_map<Way, Moved>;
  // The transfers in flight in one state: how many, and when the oldest of them was posted.
  struct Standing {
    uint64_t count = 0;
    absl::Time oldest = absl::InfiniteFuture();
  };
  struct View {
    Ways ways;
    // Bytes and firings, by session, of prepared batches that may still be fired. A session's total
    // is this plus Session::moved.
    absl::flat_hash_map<SessionId, Moved> fired_of_sessions;
    std::array<Standing, kShownStateNames.size()> states;  // by TransferEngine's state
    // in flight, the oldest first, without prepared transfers that may be fired
    std::vector<TransferId> oldest;
    // Transfers on a lane now, by the device here.
    absl::btree_map<GlobalDeviceId, uint64_t> launched;
    std::array<uint64_t, kRoutes> launched_by_route = {};
    // Bytes and counts of firings alone (sent, received), by route.
    std::array<Moved, kRoutes> fired = {};
  };

  // Counts a transfer that is over; returns what it has moved. `firings`: for a prepared transfer,
  // how many firings of its batch are over.
  Moved OnEnded(const Ended& ended, uint64_t firings);
  // Goes over everything in flight, so it costs time in proportion. View::oldest gets at most
  // `oldest` transfers.
  View Look(const EngineView& transfers, SessionTable& sessions, size_t oldest = 0) const;

 private:
  Ways ways_;
  // What firings have moved, of prepared transfers that are over.
  std::array<Moved, kRoutes> fired_ = {};
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
