// SPDX-License-Identifier: Apache-2.0
// Frames of the peer link to and from plain data. Events that make no sense are dropped and
// counted, never trusted: the engine sees only well-formed messages. Any thread.
#pragma once

#include "absl/status/statusor.h"
#include "daemon/peer_stream.h"
#include "ferry/peer/v1/peer.pb.h"

namespace ferry {

// Whether `frame` can be appended to `last`: it says nothing of its daemon, and no event between
// them took another road.
bool Follows(const PeerFrame& frame, const peer::v1::Frame& last);
// Appends to `out`, which may hold events that still wait for the wire and that `frame` follows.
void Encode(const PeerFrame& frame, peer::v1::Frame* out);
void Encode(const PeerMessage& message, peer::v1::PeerEvent* out);
// PROTOCOL_ERROR if bounds are broken (key, domain, ranges, enums).
absl::StatusOr<PeerFrame> Decode(const peer::v1::Frame& frame);
// The same of one event, appended to `frame`.
absl::Status Decode(const peer::v1::PeerEvent& event, PeerFrame& frame);

}  // namespace ferry
