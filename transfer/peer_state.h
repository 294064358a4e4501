// SPDX-License-Identifier: Apache-2.0
// What the engine knows of one peer daemon and the link to it. Plain data. Home: control.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transfer/prepared_slots.h"

namespace ferry {

// A peer daemon.
struct Peer {
  bool up = false;
  bool left = false;  // it is no peer any more, unless it comes again
  PreparedSlots slots;
  bool wanted = false;  // the outbox says already that a link to it is needed
  // Set if it has said that it drains: the time when it ends what is in flight there.
  std::optional<absl::Time> drains_until;
  bool drained = false;     // it has said that nothing is in flight there any more
  absl::Status last_error;  // why its link is not up, or why it has left
};

}  // namespace ferry
