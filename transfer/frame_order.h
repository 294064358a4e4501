// SPDX-License-Identifier: Apache-2.0
// Puts the frames of one direction of a peer link, which come by two roads (the gRPC stream and
// peer.sock), back into the order in which they were said. Home: control. Owned by its link, and as
// old. Invariant: an event comes out once, after all events before it, or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "transfer/peer_message.h"

namespace ferry {

class FrameOrder {
 public:
  // Events. Generous, since an honest peer's one frame may have as many: what it says while that is
  // under way is far less.
  static constexpr size_t kMostHeld = 1 << 20;

  // What a frame says. PROTOCOL_ERROR if some of it was said before, or more than kMostHeld events
  // wait already.
  absl::Status Put(PeerEvents said);
  // What is next, if it is here.
  std::optional<PeerEvents> Take();

 private:
  uint64_t next_ = 1;
  std::map<uint64_t, PeerEvents> held_;  // by first event; none overlap
  size_t held_events_ = 0;
};

}  // namespace ferry
