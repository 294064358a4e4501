// SPDX-License-Identifier: Apache-2.0
// What the engine knows of its own end of a clique's communicator. Plain data. Home: control.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "device/sm_load.h"

namespace ferry {

// Our rank of a clique's communicator; there is one for each clique that has or had a pair since
// its link came up.
struct CommRecord {
  bool ordered = false;  // `attempt` was ordered to be opened and has not ended
  bool open = false;     // `attempt` is open
  uint32_t attempt = 0;  // the last attempt that was ordered to be opened
  uint32_t ended = 0;    // at a follower: the last attempt that the leader has ended
  uint64_t number = 0;   // at a follower: the number of the last group that the leader has made
  // Attempts that are to be closed when the follower's groups on them are over.
  absl::InlinedVector<uint32_t, 1> closing;
  absl::Status failing;  // at a follower: why the leader was asked to end the open one
  // At a leader: the deadline of the opening, in Unix nanoseconds; the largest value: none.
  int64_t timer = std::numeric_limits<int64_t>::max();
  double bytes_per_second = 0;  // of groups that are not small; 0: there was none
  // `missed` adds up the time that transfers on other routes would have saved on an open
  // communicator (CommBook::Miss). When it reaches `worth_opening` the communicator is opened, and
  // `worth_opening` doubles until the communicator is open. kWorthOpening is about what an opening
  // takes (docs/measured-facts.md, fact 4).
  static constexpr absl::Duration kWorthOpening = absl::Milliseconds(50);
  absl::Duration missed;
  absl::Duration worth_opening = kWorthOpening;
  // Of both ends' GPUs: a group has kernels on both.
  SmLoad sms;
};

}  // namespace ferry
