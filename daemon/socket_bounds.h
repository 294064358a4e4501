// SPDX-License-Identifier: Apache-2.0
// The bounds of connections: one Admission for each of the daemon's sockets. If the process may
// have 1,024 descriptors or more, all connections together (with those that are refused and not
// closed yet, see Door) take at most half of them. The other half is left to sessions and their
// arenas. A connection counts until it is closed.
#pragma once

#include "daemon/admission.h"
#include "daemon/config/config.h"
#include "daemon/rpc/connection_table.h"

namespace ferry {

struct SocketBounds {
  // How long a connection to the peer port may stay without proving that it is a peer's.
  static constexpr absl::Duration kIntroductionTime = absl::Seconds(5);
  // How long a connection to client.sock may stay without a call, if its process has no session.
  static constexpr absl::Duration kFirstCall = absl::Seconds(30);

  // `clients` lists the connections to client.sock and admin.sock, `peers` those to the peer port.
  // Both outlive this.
  SocketBounds(const Config& config, ConnectionTable& clients, ConnectionTable& peers);

  // Takes the limits of another configuration. Any thread.
  void Configure(const Config& config);

  Admission attach, client, admin, metrics, metrics_port, peer_socket;
  Admission strangers;  // connections to the peer port that have not proven whose they are
};

}  // namespace ferry
