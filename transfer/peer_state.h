// SPDX-License-Identifier: Apache-2.0
// What the engine knows of one peer daemon and the link to it. Home: control.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transfer/engine.h"
#include "transfer/kept_bytes.h"
#include "transfer/offer_shares.h"

namespace ferry {

// The slots of this daemon's link page to one peer that prepared batches have.
struct PreparedSlots {
  // One batch's slot, and how many of its sends use it.
  struct Use {
    uint32_t slot = 0;
    size_t sends = 0;
  };
  absl::flat_hash_map<TransferId, Use> batches;  // by Posted::batch
  std::vector<uint32_t> returned;                // slots that are free again
  uint32_t given = 0;                            // the highest slot that was ever given out
};

// A peer daemon.
struct Peer {
  explicit Peer(uint64_t most_kept) : kept(most_kept) {}

  bool up = false;
  bool left = false;  // it is no peer any more, unless it comes again
  PeerFeatures features;
  PreparedSlots slots;
  bool wanted = false;  // the outbox says already that a link to it is needed
  // Set if it has said that it drains: the time when it ends what is in flight there.
  std::optional<absl::Time> drains_until;
  bool drained = false;  // it has said that nothing is in flight there any more
  // It has said that more follows in a moment: worth waiting for until then.
  absl::Time more_until = absl::InfinitePast();
  absl::Status last_error;  // why its link is not up, or why it has left
  OfferShares offers;       // its unmatched offers, which are bounded
  KeptBytes kept;           // bytes that this daemon keeps for its offers
};

}  // namespace ferry
