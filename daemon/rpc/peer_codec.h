// SPDX-License-Identifier: Apache-2.0
// Turns frames of the peer link into their proto and back. Events that make no sense are dropped
// and counted, never trusted: the engine sees only well-formed messages. Any thread.
#pragma once

#include "absl/status/statusor.h"
#include "daemon/peer/peer_stream.h"
#include "ferry/peer/v1/peer.pb.h"

namespace ferry {

// Whether `frame` may be appended to `last`: it has events only, and no event between the two has
// taken the other road.
bool Follows(const PeerFrame& frame, const peer::v1::Frame& last);
// Appends to `out`. `out` may hold events that still wait to be written, if `frame` follows them.
void Encode(const PeerFrame& frame, peer::v1::Frame* out);
void Encode(const PeerMessage& message, peer::v1::PeerEvent* out);
// PROTOCOL_ERROR if a bound is broken (key, domain, ranges, enums).
absl::StatusOr<PeerFrame> Decode(const peer::v1::Frame& frame);
// Reads one event and appends it to `frame`. PROTOCOL_ERROR as above.
absl::Status Decode(const peer::v1::PeerEvent& event, PeerFrame& frame);

}  // namespace ferry
