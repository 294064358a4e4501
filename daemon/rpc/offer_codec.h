// SPDX-License-Identifier: Apache-2.0
// Offers to and from their proto, of one send or of a convoy. Any thread.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "ferry/peer/v1/peer.pb.h"
#include "transfer/peer_message.h"

namespace ferry {

void EncodeOffer(const Offer& offer, peer::v1::Offer* out);

// The event's `offer`. PROTOCOL_ERROR if it is out of bounds.
absl::StatusOr<Offer> DecodeOffer(const peer::v1::PeerEvent& event);

// A newer daemon may know higher ones.
int32_t PriorityFrom(int32_t priority);

}  // namespace ferry
