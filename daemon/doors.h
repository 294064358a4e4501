// SPDX-License-Identifier: Apache-2.0
// Who may connect where: an Admission for each of the daemon's sockets. Together, and with what is
// refused and not closed yet (Door), they leave half of the descriptors that the process may have,
// if these are 1,024 or more, to sessions and their arenas. A connection counts until it is closed.
#pragma once

#include "daemon/admission.h"
#include "daemon/config/config.h"
#include "daemon/rpc/connection_table.h"

namespace ferry {

struct Doors {
  // How long a connection to the peer port may say nothing that makes it a peer's.
  static constexpr absl::Duration kIntroduction = absl::Seconds(5);
  // How long one to client.sock of a process without a session may be without a call.
  static constexpr absl::Duration kFirstCall = absl::Seconds(30);

  // `clients` has the connections to client.sock and admin.sock, `peers` those to the peer port.
  Doors(const Config& config, ConnectionTable& clients, ConnectionTable& peers);

  // With other limits from now on. Any thread.
  void Configure(const Config& config);

  Admission attach, client, admin, metrics, metrics_port, peer_socket;
  Admission strangers;  // on the peer port, until they are known
};

}  // namespace ferry
