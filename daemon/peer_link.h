// SPDX-License-Identifier: Apache-2.0
// The state of one link to another daemon; private to peer_table.cc, peer_hello.cc,
// peer_refusals.cc, peer_frames.cc, peer_sockets.cc, peer_tcp.cc and peer_ucx.cc. Home: control.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/link_news.h"
#include "daemon/peer_table.h"
#include "transfer/frame_order.h"

namespace ferry {

// A stream that somebody opened who says that it is `peer`. It is nobody's link until that is
// proven, and the link that `peer` has does not know of it.
struct PeerTable::Caller {
  PeerId peer;
  std::unique_ptr<PeerStream> stream;
  PeerIntroduction ours, theirs;
  absl::Time since;
};

struct PeerTable::Link {
  PeerId id;
  PeerConfig config;
  State state = State::kIdle;
  bool wanted = false;
  uint64_t number = 0;  // of its stream among all; callbacks of older ones are ignored
  std::unique_ptr<PeerStream> stream;
  bool dialled = false;           // we have opened `stream`, or, while there is none, the last one
  PeerIntroduction ours, theirs;  // of this stream
  // `stream` is opened for the other end's sake only, which has not answered yet.
  bool visiting = false;
  absl::Time visit_at;  // the next time, as long as nobody here wants the link
  bool proven = false;  // each end knows that the other one is who it says
  // Once proven: 32 bytes that both ends share and nobody else knows.
  std::string key;
  std::string random;   // without a shared secret, before that: our share of the key
  PeerHello hello;      // theirs
  Incarnation refused;  // the last one that was, because another daemon of the name lives
  absl::Time knocked = absl::InfinitePast();  // when a knock last had it dialled
  absl::Time since;                           // of the state
  absl::Time last_heard;
  absl::Time last_sent;
  absl::Time retry_at = absl::InfiniteFuture();
  absl::Duration backoff = kBackoffMin;
  uint64_t knock = 0;  // the number of the knock that was not answered yet; 0: there is none
  // Of a link that the other daemon should dial: how many knocks it has taken and not followed.
  int vain_knocks = 0;
  absl::Status error;
  LinkNews news;
  bool goodbye = false;  // they have said that they stop
  // WhenTried's, and when they are told whatever came of it.
  std::vector<std::function<void()>> awaiting;
  absl::Time awaiting_until;
  FrameOrder order;         // what they said; nothing is taken of it before we are up
  uint64_t next_event = 1;  // of what we say
  // While connecting: our connection to their peer.sock has ended. Why it is lost, unless they say
  // on the stream by then.
  std::optional<absl::Status> unsaid;
  absl::Time unsaid_until;
  std::optional<absl::Status> ending;  // it is lost once the door has read what came before its end

  // Our connection to their peer.sock, as long as the link is mapped: we ask for their arenas
  // there, and say there what fits.
  std::optional<Door::ConnectionId> socket;
  uint64_t next_sequence = 1;
  struct Asked {
    ArenaId arena;
    LocalDevice* device = nullptr;  // that maps it
  };
  absl::flat_hash_map<uint64_t, Asked> asked;
  std::deque<Asked> unasked;  // the connection took no more
  bool mapped = false;
  std::string mapped_error;
  bool mapped_unsettled = false;  // while settling: it is not known yet
  // Route `tcp`: lanes know of the peer, by what its data connections are known, why it cannot be
  // taken, and as above.
  bool tcp = false;
  std::string tcp_id;
  std::string tcp_error;
  bool tcp_unsettled = false;
  // Route `ucx`: lanes know of the peer; why it cannot be taken.
  bool ucx = false;
  std::string ucx_error;
  // Their reading of ours: the page that tells them we lost the link, and what they may ask for.
  std::shared_ptr<LinkPage> our_page;
  absl::flat_hash_set<ArenaId> granted;
  ArenaId last_granted;
};

}  // namespace ferry
