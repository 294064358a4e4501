// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/link_frames.h"

namespace ferry {

LinkFrames::Road LinkFrames::Say(PeerStream& stream, PeerFrame frame) {
  home_.Check();
  frame.first_event = next_event_;
  next_event_ += frame.events();
  if (sockets_.IsOpen(peer_) && frame.events() <= kMostBySocket && stream.waiting() == 0 &&
      sockets_.Send(peer_, frame)) {
    ++counts_.socket;
    return Road::kSocket;
  }
  ++counts_.stream;
  stream.Send(std::move(frame));
  return Road::kStream;
}

void LinkFrames::Restart() {
  home_.Check();
  order_ = FrameOrder();
  next_event_ = 1;
}

}  // namespace ferry
