// SPDX-License-Identifier: Apache-2.0
// What arrives at the daemon's one port for peers: links, which are gRPC's, and the data
// connections of route `tcp` (transfer/tcp/tcp_wire.h). The first byte tells them apart. Home: the
// door's thread.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "base/fd.h"
#include "daemon/door.h"

namespace ferry {

// Who says less than that within this time is closed.
inline constexpr absl::Duration kPeerPortPatience = absl::Seconds(5);

struct PeerPortHooks {
  std::function<void(UniqueFd, Admission::Pass)> link;
  // A data connection, and its kTcpPreambleBytes bytes; nothing of them is proven yet.
  std::function<void(std::string preamble, UniqueFd, Admission::Pass)> data;
};

// For Door::Listen. `door` must outlive its thread.
Door::OnAccept ServePeerPort(Door& door, PeerPortHooks hooks);

}  // namespace ferry
