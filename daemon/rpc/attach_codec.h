// SPDX-License-Identifier: Apache-2.0
// Turns packets of attach.sock and peer.sock into plain data and back. A packet that cannot be
// parsed is INVALID_ARGUMENT/PROTOCOL_ERROR. Any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "daemon/attach.h"
#include "daemon/peer/peer_socket.h"

namespace ferry {

absl::StatusOr<AttachCommand> ParseAttach(const std::string& packet);
std::string EncodeAttach(const AttachReply& reply);

absl::StatusOr<PeerSocketRequest> ParsePeerSocketRequest(const std::string& packet);
absl::StatusOr<PeerSocketResponse> ParsePeerSocketResponse(const std::string& packet);
std::string EncodePeerSocket(const PeerSocketRequest& request);
std::string EncodePeerSocket(const PeerSocketResponse& response);

}  // namespace ferry
