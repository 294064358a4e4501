// SPDX-License-Identifier: Apache-2.0
// What the engine knows of prepared transfers that are fired together on nccl. Plain data. Home:
// control (owned by TransferEngine).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "transfer/group.h"

namespace ferry {

// Prepared transfers of the same two batches, armed on nccl. Invariant: none leaves (its abort is
// ordered) while a group carries a firing; when one does, nothing more is fired.
struct Bundle {
  Clique clique;
  PairName name;
  PeerId peer;
  bool sends = false;
  bool leads = false;
  TransferId batch;  // ours, of which the halves are
  uint32_t batch_size = 0;
  size_t halves = 0;   // ours that are in it
  uint64_t bytes = 0;  // of a firing
  // As the destination says.
  int32_t priority = 0;
  bool direct = true;
  // The next firing: our end allows it, and its leader knows; at the leader: the other one does;
  // at the leader: it waits for groups, or is in them.
  bool wanted = false;
  bool other_wants = false;
  bool handed = false;
  bool begun = false;   // some firing was in a group
  bool broken = false;  // some half leaves
  // Of the firing: how much is in groups, in how many that are not over, and has arrived.
  uint64_t cut = 0;
  uint32_t chunks_out = 0;
  uint64_t moved = 0;
  absl::Status why;                                          // why a chunk failed
  std::vector<std::pair<TransferId, absl::Status>> leaving;  // when no group carries it any more
};

}  // namespace ferry
