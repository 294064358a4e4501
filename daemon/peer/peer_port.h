// SPDX-License-Identifier: Apache-2.0
// The daemon's one TCP port for peers takes two kinds of connections: links, which are gRPC's, and
// data connections of route `tcp` (transfer/tcp/tcp_wire.h). This header tells them apart by their
// first byte. Home: the door's thread.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "base/fd.h"
#include "daemon/door.h"

namespace ferry {

// A connection that has not sent its first byte, or its whole preamble, within this time is closed.
inline constexpr absl::Duration kPeerPortPatience = absl::Seconds(5);

// Each hook takes over a connection that has arrived.
struct PeerPortHooks {
  std::function<void(UniqueFd, Admission::Pass)> link;
  // A data connection and its preamble of kTcpPreambleBytes bytes. Nothing that the preamble says
  // is proven yet.
  std::function<void(std::string preamble, UniqueFd, Admission::Pass)> data;
};

// Makes the handler for Door::Listen. `door` must outlive its own thread.
Door::OnAccept ServePeerPort(Door& door, PeerPortHooks hooks);

}  // namespace ferry
