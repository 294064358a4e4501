// SPDX-License-Identifier: Apache-2.0
// peer.sock as plain data; meaning is in proto/ferry/peer/v1/peer_socket.proto, which
// daemon/rpc/attach_codec codes these to and from.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "base/ids.h"
#include "daemon/peer_stream.h"
#include "device/memory.h"

namespace ferry {

struct PeerSocketHello {
  std::string node;
  std::string asked_nonce;  // of the asked daemon's introduction on the link
  bool prepared = false;
  // Without a shared secret, from the dialler: its share of the link's key, and PeerProof by that.
  std::string random = {};
  std::string proof = {};
};
struct GetArena {
  ArenaId arena;
};
struct PeerSocketRequest {
  uint64_t sequence = 0;
  // A frame has events and no hello, and is not answered.
  std::variant<PeerSocketHello, GetArena, PeerFrame> body;
};
struct PeerSocketWelcome {
  std::string random = {};  // the answerer's share
};
struct ArenaGranted {
  ArenaId arena;
  MemoryShare memory;
};
struct PeerSocketResponse {
  uint64_t sequence = 0;
  absl::Status error;  // not OK: the body means nothing
  std::variant<PeerSocketWelcome, ArenaGranted> body;
};

}  // namespace ferry
