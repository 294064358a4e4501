// SPDX-License-Identifier: Apache-2.0
// The state of one link to another daemon; private to peer_table.cc, peer_hello.cc,
// peer_refusals.cc, peer_frames.cc and peer_sockets.cc. What a route must remember of a link is
// kept by its LinkRoute. Home: control.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/peer/link_news.h"
#include "daemon/peer/peer_table.h"
#include "transfer/frame_order.h"

namespace ferry {

// A stream that another daemon has opened and whose introduction says that it is `peer`. It belongs
// to no link until that is proven, and the Link of `peer` does not know of it.
struct PeerTable::Caller {
  PeerId peer;
  std::unique_ptr<PeerStream> stream;
  PeerIntroduction ours, theirs;
  absl::Time since;
};

// The link to one peer, from the daemon's start (or Add) to its end (or Remove), whether a stream
// is open or not. "We" is this daemon, "they" the peer.
struct PeerTable::Link {
  PeerId id;
  PeerConfig config;
  State state = State::kIdle;
  bool wanted = false;  // the link is opened again whenever it is lost
  // Number of the stream among all streams; callbacks of older streams are ignored
  uint64_t number = 0;
  std::unique_ptr<PeerStream> stream;
  // We have opened `stream`; while there is no stream: we have opened the last one.
  bool dialled = false;
  PeerIntroduction ours, theirs;  // what both ends have said of themselves on this stream
  // `stream` is a visit: we have opened it for the other daemon's sake only, and it has not
  // answered yet.
  bool visiting = false;
  absl::Time visit_at;  // when the next visit is due, as long as nobody here wants the link
  bool proven = false;  // both ends have proven who they are
  // The link's secret, once `proven`: 32 bytes that both daemons have and nobody else.
  std::string secret;
  std::string random;   // before `proven`, without a shared secret: our share of `secret`
  PeerHello hello;      // what the peer said of itself when the link last came up
  Incarnation refused;  // the last incarnation we refused because another daemon of this name lives
  absl::Time knocked = absl::InfinitePast();  // when a knock last made us dial
  absl::Time since;                           // when `state` was entered
  absl::Time last_heard;
  absl::Time last_sent;
  absl::Time retry_at = absl::InfiniteFuture();
  absl::Duration backoff = kBackoffMin;
  uint64_t knock = 0;  // number of our knock that is not answered yet; 0: none is under way
  // How many of our knocks the peer has answered with OK without dialling. Used where the peer
  // should dial.
  int vain_knocks = 0;
  // Why the link was lost or refused; OK before the first time and while it is up.
  absl::Status error;
  LinkNews news;
  bool goodbye = false;  // the peer has said that it stops
  // WhenTried's callbacks, and when they are called whatever has become of the link.
  std::vector<std::function<void()>> awaiting;
  absl::Time awaiting_until;
  FrameOrder order;         // what the peer said; nothing is taken out of it before the link is up
  uint64_t next_event = 1;  // number of the next event that we say
  // While connecting: our connection to their peer.sock has ended. The link is lost for this reason
  // at `unsaid_until`, unless the peer says a better one on the stream before.
  std::optional<absl::Status> unsaid;
  absl::Time unsaid_until;
  // Why the link is lost, once the door has read what arrived before the connection's end.
  std::optional<absl::Status> ending;

  // Our connection to their peer.sock, as long as their arenas can be mapped. We ask for their
  // arenas there, and say frames there that fit a packet.
  std::optional<Door::ConnectionId> socket;
  uint64_t next_sequence = 1;
  // A request for one of their arenas; `asked` has it by the sequence number of the request.
  struct Asked {
    ArenaId arena;
    LocalDevice* device = nullptr;  // the device of ours that maps the arena
  };
  absl::flat_hash_map<uint64_t, Asked> asked;
  std::deque<Asked> unasked;  // requests that the connection did not take yet
  bool mapped = false;
  std::string mapped_error;
  // True while settling until it is known whether arenas can be mapped.
  bool mapped_unsettled = false;
  // What the peer may map of ours: the page that tells it that we lost the link; the arenas that
  // our offers have named, which it may ask for; the last of them that was added.
  std::shared_ptr<LinkPage> our_page;
  absl::flat_hash_set<ArenaId> lent;
  ArenaId last_lent;
};

}  // namespace ferry
