// SPDX-License-Identifier: Apache-2.0
// The options of TransferEngine, which its rules read too. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "transfer/clique/clique_options.h"
#include "transfer/types.h"

namespace ferry {

struct EngineOptions {
  // Those that may change while transfers are posted (TransferEngine::SetBounds).
  struct Bounds {
    // Leave the order where another route was measured to be clearly faster.
    bool by_estimate = true;
    // Offers of one peer that may wait here unmatched; more are answered
    // RESOURCE_EXHAUSTED/QUEUE_FULL.
    size_t offers_per_peer = 400'000;
    // What the offers of one peer that are not over may take (RecordBytes).
    uint64_t peer_kept_bytes = uint64_t{512} << 20;
    // A group of large transfers may have as many bytes as the measured rate moves in this time, or
    // `cliques.cutting.group_bytes` if that is more. A small transfer waits for two of these
    // groups, the one that runs and the one that has its lanes already, and then goes in a short
    // group.
    absl::Duration group_time = absl::Milliseconds(2);
  };

  std::vector<Route> order = {Route::kLocal, Route::kMapped, Route::kUcx};
  Bounds bounds;
  // Unmatched halves that have ended, of which a later partner is told, of transfers with one peer.
  // The oldest is forgotten.
  size_t tombstones_per_peer = 65'536;
  // The most transfers that one call of TransferEngine::OnTime ends of sessions that end, and as
  // many at their deadlines: a session may have a hundred thousand. If more are left, NextDeadline
  // is a time that has passed.
  size_t ends_at_once = 512;
  // Carry small transfers of a batch that are alike as one (transfer/convoy.h).
  bool convoys = true;
  // Between two devices whose clients cut their batches differently, no convoy is made for so long.
  absl::Duration no_convoys_for = absl::Seconds(1);
  // Between two devices where the launch of a convoy was refused.
  absl::Duration no_convoys_after_refusal = absl::Minutes(1);
  CliqueOptions cliques;
};

}  // namespace ferry
