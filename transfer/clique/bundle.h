// SPDX-License-Identifier: Apache-2.0
// What the engine knows of prepared transfers that are fired together on nccl. Plain data. Home:
// control (owned by BundleBook).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "transfer/clique/load.h"

namespace ferry {

// The prepared transfers between the same two batches, armed on nccl. Invariant: none of them
// leaves (its abort is ordered) while a group carries a firing; once one wants to leave nothing
// more is fired.
struct Bundle {
  Load load;  // the current firing; `load.bytes` of every firing
  bool leads = false;
  TransferId batch;  // our batch, which has the transfers' halves
  uint32_t batch_size = 0;
  size_t halves = 0;  // halves of ours that are in the bundle
  // What the destination says of the firing's groups, by Fire or at its own end. `priority`: as in
  // HandOver. `unstaged`: each transfer is in one piece at both ends, and none is packed
  // (GroupCutter::Options::direct_bytes).
  int32_t priority = 0;
  bool unstaged = true;
  // The next firing. `wanted`: our end allows it, and the leader knows. At the leader
  // `other_wants`: the follower's end allows it; `handed`: it waits for groups, or is in them.
  bool wanted = false;
  bool other_wants = false;
  bool handed = false;
  bool begun = false;   // some firing was in a group
  bool broken = false;  // a half leaves, so nothing more is fired
  // The halves that leave, and why, once no group carries the firing any more.
  std::vector<std::pair<TransferId, absl::Status>> leaving;
};

}  // namespace ferry
