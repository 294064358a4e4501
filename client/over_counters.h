// SPDX-License-Identifier: Apache-2.0
// Which 'over' counter a post takes that names none (0): one for each device, because the daemon
// binds a counter to the device of its first use. Counter 0 is the first such device's, later ones
// take from 63 down what the application has not named. Any thread; owned by the session.
// Invariant: a device's counter stays the same over all lives of the daemon.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>

#include "client/status.h"
#include "proto/ferry/v1/timeline_layout.h"

namespace ferry::client {

class OverCounters {
 public:
  // `device`: one of the daemon's. `wanted` is taken as it is unless it is 0.
  StatusPtr Choose(uint64_t device, uint32_t wanted, uint32_t* counter);

 private:
  std::mutex mutex_;
  std::array<bool, FERRY_TIMELINE_COUNTERS> used_{};  // named by the application, or chosen
  std::map<uint64_t, uint32_t> chosen_;               // by device
};

}  // namespace ferry::client
