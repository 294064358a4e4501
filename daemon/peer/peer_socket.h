// SPDX-License-Identifier: Apache-2.0
// The messages of peer.sock as plain data. What each means is in
// proto/ferry/peer/v1/peer_socket.proto; daemon/rpc/attach_codec turns packets into these structs
// and back.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "base/ids.h"
#include "daemon/peer/peer_stream.h"
#include "device/memory.h"

namespace ferry {

struct PeerSocketHello {
  std::string node;
  std::string asked_nonce;  // the nonce in the introduction of the daemon that is asked
  // Without a shared secret, from the daemon that dialled: its share of the link's secret, and a
  // PeerProof made with that share.
  std::string random = {};
  std::string proof = {};
};
struct GetArena {
  ArenaId arena;
};
struct PeerSocketRequest {
  uint64_t sequence = 0;
  // A PeerFrame here has events and no hello, and is not answered.
  std::variant<PeerSocketHello, GetArena, PeerFrame> body;
};
struct PeerSocketWelcome {
  std::string random = {};  // the share of the daemon that answers
};
struct ArenaLent {
  ArenaId arena;
  MemoryShare memory;
};
struct PeerSocketResponse {
  uint64_t sequence = 0;
  absl::Status error;  // if not OK, the body means nothing
  std::variant<PeerSocketWelcome, ArenaLent> body;
};

}  // namespace ferry
