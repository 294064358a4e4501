// SPDX-License-Identifier: Apache-2.0
// What links need of the door: connections on this daemon's peer.sock, and on those of peers. Home:
// control.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "daemon/door.h"
#include "daemon/peer/peer_socket.h"

namespace ferry {

struct PeerSocketHooks {
  // Sends on a connection to a peer's peer.sock. False if the connection does not take the
  // request, or the request does not fit a packet.
  std::function<bool(Door::ConnectionId, const PeerSocketRequest&)> send_request;
  // Answers a request that came on a connection to this daemon's peer.sock. The descriptors go with
  // the answer; the caller keeps its own. False if the connection is gone, or takes no more because
  // the peer does not read its answers: then nothing was sent.
  std::function<bool(Door::ConnectionId, const PeerSocketResponse&, const std::vector<int>&)>
      send_response;
  std::function<void(Door::ConnectionId)> close;
  // Closes the connection as well, but first delivers what has arrived, then calls
  // PeerTable::OnSocketClosed.
  std::function<void(Door::ConnectionId)> finish;
  // Connects to a peer's peer.sock; answers come to PeerTable::OnSocketResponse.
  std::function<absl::StatusOr<Door::ConnectionId>(PeerId, const std::string& path)> connect;
};

}  // namespace ferry
