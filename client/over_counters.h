// SPDX-License-Identifier: Apache-2.0
// Chooses the 'over' counter of a post that names none (0). Each device has a counter of its own,
// because the daemon binds a counter to the device of its first use. The first device that posts so
// has counter 0; later ones have the highest free counter from 63 down that the application has not
// named. Any thread; owned by the session. Invariant: a device's counter stays the same over all
// lives of the daemon.
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
  // `device` is a device of the daemon. `wanted` is taken as it is unless it is 0. Refused when no
  // counter is left for the device.
  StatusPtr Choose(uint64_t device, uint32_t wanted, uint32_t* counter);

 private:
  std::mutex mutex_;                                  // guards what follows
  std::array<bool, FERRY_TIMELINE_COUNTERS> used_{};  // named by the application, or chosen
  std::map<uint64_t, uint32_t> chosen_;               // by device
};

}  // namespace ferry::client
