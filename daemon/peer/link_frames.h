// SPDX-License-Identifier: Apache-2.0
// What is said and heard on one link once hellos are exchanged. Frames go by two roads: the stream,
// and, between daemons of one host, our connection to their peer.sock. Each event has a number, by
// which the other end puts frames of both roads in order (FrameOrder). Home: control. Owner:
// PeerLink.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/peer/peer_stream.h"
#include "daemon/peer/their_sockets.h"
#include "transfer/frame_order.h"

namespace ferry {

// Frames sent to all peers since the start, by road. Heartbeats are not counted.
struct FrameCounts {
  uint64_t socket = 0;
  uint64_t stream = 0;
};

class LinkFrames {
 public:
  // A frame with more events than this goes by the stream: it would hardly fit a packet of
  // peer.sock, and coding it for peer.sock would be in vain.
  static constexpr uint64_t kMostBySocket = 1024;

  enum class Road { kSocket, kStream };

  LinkFrames(TheirSockets& sockets, PeerId peer, FrameCounts& counts)
      : sockets_(sockets), peer_(peer), counts_(counts) {}

  // Says a frame of events, by peer.sock if that takes it, else by the stream. A frame does not
  // overtake frames that wait for the stream: a peer that does not read should not have to keep
  // those that follow.
  Road Say(PeerStream& stream, PeerFrame frame);
  // The peer has said these events, by any road. Refuses what FrameOrder::Put refuses.
  absl::Status Hear(PeerEvents events) {
    home_.Check();
    return order_.Put(std::move(events));
  }
  // The next events of the peer in order, if they are here.
  std::optional<PeerEvents> Take() {
    home_.Check();
    return order_.Take();
  }
  // The link is lost: the events of the next one are numbered from 1 again.
  void Restart();

 private:
  TheirSockets& sockets_;
  const PeerId peer_;
  FrameCounts& counts_;
  FrameOrder order_;         // what the peer said
  uint64_t next_event_ = 1;  // number of the next event that we say
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
