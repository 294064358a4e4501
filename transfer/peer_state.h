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

// The slots of our link page to one peer.
struct PreparedSlots {
  struct Use {
    uint32_t slot = 0;
    size_t sends = 0;
  };
  absl::flat_hash_map<TransferId, Use> batches;  // by Posted::batch
  std::vector<uint32_t> returned;
  uint32_t given = 0;  // the highest one
};

struct Peer {
  explicit Peer(uint64_t most_kept) : kept(most_kept) {}

  bool up = false;
  bool left = false;  // it is no peer any more, until it comes again
  PeerFeatures features;
  PreparedSlots slots;
  bool wanted = false;  // in this outbox already
  // It has said that it drains, and what is in flight there is ended then.
  std::optional<absl::Time> drains_until;
  bool drained = false;  // and nothing is
  // It has said that more follows, which it would do until then.
  absl::Time more_until = absl::InfinitePast();
  absl::Status last_error;  // of a link that is not up; why it has left
  OfferShares offers;       // unmatched ones: what the bound counts
  KeptBytes kept;           // by its offers
};

}  // namespace ferry
