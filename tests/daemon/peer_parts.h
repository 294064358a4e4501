// SPDX-License-Identifier: Apache-2.0
// What a PeerTable is made of, without the table: node-b as its peers know it, streams and
// connections on peer.sock that a test plays. A test calls the parts.
#pragma once

#include <fcntl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/peer/introduction.h"
#include "daemon/peer/socket_hooks.h"
#include "tests/daemon/peer_rig.h"

namespace ferry::testing {

inline constexpr char kPartsSecret[] = "the secret of the parts";

inline OwnDaemon OwnNode(const std::string& node, const std::string& secret = kPartsSecret) {
  OwnDaemon own;
  own.node = node;
  own.incarnation = Incarnation(42);
  own.boot_id = "boot";
  own.peer_socket = "/" + node + "/peer.sock";
  own.secret = secret;
  return own;
}

inline PeerConfig PeerNode(const std::string& node, std::vector<GlobalDeviceId> devices = {}) {
  return {node, node + ":7000", std::move(devices)};
}

// A stream of which a test sees what is said on it.
inline std::pair<std::unique_ptr<PeerStream>, std::shared_ptr<StreamRecord>> MakeStream() {
  auto record = std::make_shared<StreamRecord>();
  return {std::make_unique<FakeStream>(record), record};
}

// What was done with connections on peer.sock. Connections to peers are numbered from 51.
struct PlayedSockets {
  bool taken = true;  // connections take requests
  absl::Status connect_error;
  std::vector<std::pair<PeerId, std::string>> connects;
  std::vector<SocketRequest> requests;
  std::vector<SocketResponse> responses;
  std::vector<Door::ConnectionId> closed, finished;

  const PeerSocketHooks hooks = {
      .send_request =
          [this](Door::ConnectionId connection, const PeerSocketRequest& request) {
            if (taken) requests.push_back({connection, request});
            return taken;
          },
      .send_response =
          [this](Door::ConnectionId connection, const PeerSocketResponse& response,
                 const std::vector<int>& fds) {
            SocketResponse& said = responses.emplace_back();
            said.connection = connection;
            said.response = response;
            for (const int fd : fds) said.fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 3));
            return true;
          },
      .close = [this](Door::ConnectionId connection) { closed.push_back(connection); },
      .finish = [this](Door::ConnectionId connection) { finished.push_back(connection); },
      .connect = [this](PeerId peer,
                        const std::string& path) -> absl::StatusOr<Door::ConnectionId> {
        connects.emplace_back(peer, path);
        if (!connect_error.ok()) return connect_error;
        return 50 + connects.size();
      }};
};

}  // namespace ferry::testing
