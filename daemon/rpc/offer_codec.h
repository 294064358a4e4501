// SPDX-License-Identifier: Apache-2.0
// Turns offers (of one send, or of a convoy) into their proto and back. Any thread.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "ferry/peer/v1/peer.pb.h"
#include "transfer/peer_message.h"

namespace ferry {

void EncodeOffer(const Offer& offer, peer::v1::Offer* out);

// Reads the event's `offer`. PROTOCOL_ERROR if it breaks a bound.
absl::StatusOr<Offer> DecodeOffer(const peer::v1::PeerEvent& event);

// The priority of an offer, brought within the range that this daemon knows: a newer daemon may
// know higher ones.
int32_t PriorityFrom(int32_t priority);

}  // namespace ferry
