// SPDX-License-Identifier: Apache-2.0
// The partings: what is kept of links whose other end we refuse, until the other end has closed or
// kTimeout has passed. A link that was closed at once could end before the peer has read why. What
// is said on a parting counts no more.
//
// Owns the streams that we have opened; closes the connections on peer.sock, which the door owns.
// Home: control. Owner: PeerTable; PeerLink adds.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/executor.h"
#include "base/home.h"
#include "daemon/door.h"
#include "daemon/peer/peer_stream.h"

namespace ferry {

class Partings {
 public:
  static constexpr absl::Duration kTimeout = absl::Seconds(1);

  // `close` closes a connection on a peer.sock.
  Partings(Executor& control, std::function<void(Door::ConnectionId)> close)
      : control_(control), close_(std::move(close)) {}

  // `number`: of the link's stream. `stream`: null if the peer opened it (it has ended then).
  // `sockets`: the connections on peer.sock, to the peer and from it.
  void Add(uint64_t number, std::unique_ptr<PeerStream> stream,
           std::vector<Door::ConnectionId> sockets);
  // Whether the connection is of a link that was refused.
  bool Has(Door::ConnectionId socket) const;
  // The other end has closed the stream of this number. Does nothing if it is of no parting.
  void End(uint64_t number);
  void EndAll();
  // Ends what is kept for kTimeout. Returns when to be called again.
  absl::Time OnTime(absl::Time now);

 private:
  struct Parting {
    std::unique_ptr<PeerStream> stream;
    absl::Time since;
    std::vector<Door::ConnectionId> sockets;
  };

  Executor& control_;
  const std::function<void(Door::ConnectionId)> close_;
  std::map<uint64_t, Parting> partings_;  // by the number of the stream
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
