// SPDX-License-Identifier: Apache-2.0
// PeerTable's frames: what is said and heard on a link once hellos are exchanged, by both roads.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/peer/peer_link.h"

namespace ferry {

void PeerTable::Send(PeerId peer, std::vector<PeerMessage> messages, bool more) {
  home_.Check();
  if (Find(peer) == nullptr) return;
  Link& link = *Find(peer);
  if (link.state != State::kUp)
    return;  // the engine hears of the lost link, and ends what the messages are about
  for (const PeerMessage& message : messages) {
    const Offer* offer = std::get_if<Offer>(&message);
    if (offer == nullptr || link.hello.boot_id != boot_id_) continue;
    for (const Range& range : offer->layout.extents()) {
      if (range.arena == link.last_lent || !link.lent.insert(range.arena).second) continue;
      link.last_lent = range.arena;
      lent_to_[range.arena].push_back(peer);
    }
  }
  Tell(link, {{std::move(messages), {}, 0, more}});
}

void PeerTable::Tell(Link& link, PeerFrame frame) {
  frame.first_event = link.next_event;
  link.next_event += frame.events();
  // A frame does not overtake frames that wait for the stream: a peer that does not read should not
  // have to keep those that follow.
  if (link.socket.has_value() && frame.events() <= kMostBySocket && link.stream->waiting() == 0) {
    PeerSocketRequest request{link.next_sequence++, std::move(frame)};
    if (hooks_.send_request(*link.socket, request)) {
      ++frames_.socket;
      return;
    }
    frame = std::get<PeerFrame>(std::move(request.body));
  }
  ++frames_.stream;
  link.last_sent = control_.Now();
  link.stream->Send(std::move(frame));
}

void PeerTable::OnEvents(Link& link, PeerEvents events) {
  if (absl::Status put = link.order.Put(std::move(events)); !put.ok()) {
    return Lose(link, Annotate(put, absl::StrCat("the link to ", link.config.node)));
  }
  Deliver(link);
}

void PeerTable::Deliver(Link& link) {
  while (link.state == State::kUp) {
    std::optional<PeerEvents> events = link.order.Take();
    if (!events.has_value()) return;
    for (const ArenaId arena : events->arenas_gone) driver_->OnPeerArenaGone(link.id, arena);
    if (!events->messages.empty()) {
      driver_->OnPeerMessages(link.id, std::move(events->messages), events->more);
    }
  }
}

// The stream, or our connection to their peer.sock, has ended. What they said before, perhaps that
// transfers went well, is still in their connection to ours. It counts, as it would at the end of a
// single stream.
void PeerTable::LoseOnceRead(Link& link, const absl::Status& why) {
  const auto theirs = std::find_if(socket_peers_.begin(), socket_peers_.end(),
                                   [&](const auto& entry) { return entry.second == link.id; });
  if (theirs == socket_peers_.end()) return Lose(link, why);
  if (!link.ending.has_value()) link.ending = why;
  hooks_.finish(theirs->first);
}

void PeerTable::OnUcxMoved(GlobalDeviceId device, std::optional<PeerId> to) {
  home_.Check();
  for (const auto& link : links_) {
    if (link == nullptr || !link->proven || (to.has_value() && link->id != *to)) continue;
    // The dialler says hello as soon as both have proven who they are; the dialled daemon says it
    // when it has heard that.
    if (link->state != State::kSettling && link->state != State::kUp && !link->dialled) continue;
    PeerFrame frame;
    frame.moved.push_back({device, ucx_.AddressesOf(device, link->id)});
    link->stream->Send(std::move(frame));
  }
}

void PeerTable::OnMoved(Link& link, std::vector<PeerDeviceInfo> moved) {
  if (link.hello.ucx_version != options_.ucx_version) return;
  for (PeerDeviceInfo& now : moved) {
    for (PeerDeviceInfo& device : link.hello.devices) {
      if (device.id == now.id) device.ucx_addresses = std::move(now.ucx_addresses);
    }
  }
  ucx_.OnMoved(ViewOf(link));
}

}  // namespace ferry
