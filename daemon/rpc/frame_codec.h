// SPDX-License-Identifier: Apache-2.0
// Turns frames of peer.sock into bytes and back. What batches of transfers consist of is coded here
// by protozero, without protobuf's messages: plain offers, endings of transfers that went well, and
// for `nccl` hand-overs and groups. To make, fill and take apart thousands of protobuf messages was
// a fifth of what posting cost. The bytes are those of protoc's code. Anything in another form, and
// every refusal, is left to protoc's code (peer_codec). Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/peer/peer_stream.h"

namespace ferry {

// The serialized ferry.peer.v1.PeerSocketRequest with this frame.
std::string EncodeFramePacket(uint64_t sequence, const PeerFrame& frame);

struct FramePacket {
  uint64_t sequence = 0;  // not 0
  absl::string_view frame;
};
// Nothing if the packet has no frame, or is not in the form of EncodeFramePacket.
std::optional<FramePacket> FindFrame(absl::string_view packet);

// Parses a serialized ferry.peer.v1.Frame. PROTOCOL_ERROR if it is malformed or breaks a bound.
absl::StatusOr<PeerFrame> DecodeFrame(absl::string_view bytes);

}  // namespace ferry
