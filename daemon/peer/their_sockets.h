// SPDX-License-Identifier: Apache-2.0
// Our connections to the peer.socks of peers on this host, at most one for each peer. On it we say
// frames that fit a packet, ask for the peer's arenas, and map those that come. An arena is mapped
// by the memory thread of the device that asked for it, because that may block.
//
// A request that the connection does not take waits (the connection is full of frames, or has
// ended). When the link is lost, requests are forgotten, and what is mapped for them later is
// destroyed. Owns no connection, the door does. Home: control. Owner: PeerTable.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/fd.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/door.h"
#include "daemon/local_devices.h"
#include "daemon/peer/peer_socket.h"
#include "daemon/peer/socket_hooks.h"
#include "device/memory.h"

namespace ferry {

class TheirSockets {
 public:
  // Before a request that the connection did not take is tried again.
  static constexpr absl::Duration kAskAgain = absl::Milliseconds(5);

  // What became of a request for an arena of a peer.
  using Answer =
      std::function<void(PeerId, ArenaId, absl::StatusOr<std::unique_ptr<DeviceMemory>>)>;

  TheirSockets(Executor& control, LocalDevices& devices, const PeerSocketHooks& hooks,
               Answer answer)
      : control_(control), devices_(devices), hooks_(hooks), answer_(std::move(answer)) {}

  // Connects to the peer's peer.sock at `path` and says `hello` there. If the hello cannot be said,
  // the connection stays open until it is closed.
  absl::Status Connect(PeerId peer, const std::string& path, PeerSocketHello hello);
  bool IsOpen(PeerId peer) const;
  bool Is(Door::ConnectionId connection, PeerId peer) const;
  // The peer to whose peer.sock the connection is.
  std::optional<PeerId> PeerOf(Door::ConnectionId connection) const;

  // False if the connection does not take the frame, which is then unchanged.
  bool Send(PeerId peer, PeerFrame& frame);
  // Asks for an arena, to be mapped by `device`, which is one of ours.
  void Fetch(PeerId peer, ArenaId arena, GlobalDeviceId device);
  // Says requests that wait. Returns whether some still do (try again after kAskAgain).
  bool Ask(PeerId peer);
  // The answer to a request for an arena; an answer to nothing is ignored. `node`: the name of the
  // peer, for errors.
  void OnResponse(PeerId peer, const std::string& node, PeerSocketResponse response,
                  ReceivedFds fds);

  // The connection has ended. Requests stay until Close: the link may not be lost yet.
  void OnClosed(PeerId peer);
  // Takes the connection out without closing it; none if it is not open.
  std::optional<Door::ConnectionId> Take(PeerId peer);
  // Closes the connection, if it is open, and forgets all requests.
  void Close(PeerId peer);

 private:
  struct Asked {
    ArenaId arena;
    LocalDevice* device = nullptr;  // the device of ours that maps the arena
  };
  struct Socket {
    uint64_t life = 0;  // how many links of this peer were lost
    std::optional<Door::ConnectionId> connection;
    uint64_t next_sequence = 1;
    absl::flat_hash_map<uint64_t, Asked> asked;  // by the sequence number of the request
    std::deque<Asked> unasked;                   // requests that the connection did not take yet
  };
  const Socket* Find(PeerId peer) const;
  void Map(PeerId peer, const Asked& asked, const MemoryShare& memory, ReceivedFds fds,
           uint64_t life);

  Executor& control_;
  LocalDevices& devices_;
  const PeerSocketHooks& hooks_;
  const Answer answer_;
  absl::flat_hash_map<PeerId, Socket> sockets_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
