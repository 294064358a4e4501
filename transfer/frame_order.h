// SPDX-License-Identifier: Apache-2.0
// Puts frames of one direction of a peer link back into the order in which they were sent. They
// come by two ways: the gRPC stream and peer.sock. Home: control. Owned by its link; a new link has
// a new FrameOrder. Invariant: an event comes out once and after all events before it, or not at
// all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "base/home.h"
#include "transfer/peer_message.h"

namespace ferry {

class FrameOrder {
 public:
  // The most events that are held back. This is generous: an honest peer may have as many in one
  // frame, and sends far fewer while a frame is under way.
  static constexpr size_t kMostHeld = 1 << 20;

  // Takes the events of a frame, of which the first has a number of at least 1. PROTOCOL_ERROR if
  // it has no number, if some of them came before, or if more than kMostHeld events wait already.
  absl::Status Put(PeerEvents said);
  // The next events in order, if they are here.
  std::optional<PeerEvents> Take();

 private:
  uint64_t next_ = 1;
  std::map<uint64_t, PeerEvents> held_;  // by the number of the first event; no overlaps
  size_t held_events_ = 0;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
