// SPDX-License-Identifier: Apache-2.0
// Our peer.sock: what daemons of this host ask there. A connection shows the nonce of one link, so
// it is of that link and of no other. Before that it is of nobody, and whatever it asks for is
// refused. Then it may ask for the arenas that are lent to its peer, and gets their descriptors.
//
// Owns no connection, the door does. Home: control. Owner: PeerTable, which finds out which link a
// connection is of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/door.h"
#include "daemon/peer/lent_arenas.h"
#include "daemon/peer/partings.h"
#include "daemon/peer/peer_socket.h"
#include "daemon/peer/socket_hooks.h"
#include "daemon/session/session_table.h"
#include "transfer/mapped/link_page.h"

namespace ferry {

class OwnSocket {
 public:
  OwnSocket(const PeerSocketHooks& hooks, SessionTable& sessions, const LentArenas& lent,
            const Partings& partings)
      : hooks_(hooks), sessions_(sessions), lent_(lent), partings_(partings) {}

  // The peer that the connection has proven to be of.
  std::optional<PeerId> PeerOf(Door::ConnectionId connection) const;

  // The connection is that of `peer` from here on. Answers its hello with our link page and, if the
  // page has slots, its doorbells.
  void Welcome(Door::ConnectionId connection, PeerId peer, uint64_t sequence,
               PeerSocketWelcome welcome, const LinkPage& page);
  // Answers a request with `why` and closes the connection, which is of no link from here on.
  void Refuse(Door::ConnectionId connection, const Credentials& credentials, uint64_t sequence,
              absl::Status why);
  // Answers a request for an arena. `node`: the name of `peer`, for the error.
  void Share(Door::ConnectionId connection, PeerId peer, const std::string& node, uint64_t sequence,
             ArenaId arena);

  // The connection has ended. Does nothing if it is of no link.
  void Forget(Door::ConnectionId connection) {
    home_.Check();
    connections_.erase(connection);
  }
  bool Has(PeerId peer) const;
  // Ends a connection of the peer, which has one, once what it said has been read.
  void Finish(PeerId peer);
  // Closes the connections of the peer. Take leaves that to the caller.
  void Close(PeerId peer);
  std::vector<Door::ConnectionId> Take(PeerId peer);

 private:
  using Connections = absl::flat_hash_map<Door::ConnectionId, PeerId>;
  Connections::const_iterator Find(PeerId peer) const;

  const PeerSocketHooks& hooks_;
  SessionTable& sessions_;
  const LentArenas& lent_;
  const Partings& partings_;
  Connections connections_;  // those that are of a link
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
