// SPDX-License-Identifier: Apache-2.0
// Frames of peer.sock to and from their bytes. What batches of transfers consist of, plain offers,
// the endings of what went well, and of nccl what is handed over and groups, is coded here by
// protozero, without protobuf's messages: to make, fill and take apart thousands of them was a
// fifth of what posting cost. The bytes are those of protoc's code; whatever is said in another way
// than here is left to it (peer_codec), and so is every refusal. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/peer_stream.h"

namespace ferry {

// The serialized ferry.peer.v1.PeerSocketRequest that says a frame.
std::string EncodeFramePacket(uint64_t sequence, const PeerFrame& frame);

struct FramePacket {
  uint64_t sequence = 0;  // not 0
  absl::string_view frame;
};
// Nothing if the packet says no frame, or is not as above.
std::optional<FramePacket> FindFrame(absl::string_view packet);

// A serialized ferry.peer.v1.Frame. PROTOCOL_ERROR if it is none, or bounds are broken.
absl::StatusOr<PeerFrame> DecodeFrame(absl::string_view bytes);

}  // namespace ferry
