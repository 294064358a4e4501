// SPDX-License-Identifier: Apache-2.0
// A daemon of the membership that means harm: it proves who it is and says hello well on the peer
// port, has a peer.sock with a link page of its own, and then says sense and nonsense on the link,
// on the other daemon's peer.sock, in its page and on data connections, from a seed. How a hello is
// said well is here only (Introduction, Hello). One thread; what it hears is read by others.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ferry/peer/v1/peer.grpc.pb.h"
#include "ferry/peer/v1/peer_socket.pb.h"
#include "tests/support/bad_data.h"
#include "tests/support/nonsense.h"
#include "tests/support/raw_socket.h"

namespace ferry::testing {

struct BadPeerOptions {
  std::string secret;             // of the cluster
  std::string node;               // as whom it speaks; its name is smaller, so that it dials
  std::vector<uint64_t> devices;  // that node's
  std::vector<uint64_t> theirs;   // the other daemon's
  std::string address;            // of the other daemon's peer port
  std::string their_socket;       // its peer.sock
  std::string own_socket;         // where ours is to be
  uint64_t bytes = 0;             // of each of what others receive from it, with keys v0 to v7
};

class BadPeer {
 public:
  BadPeer(BadPeerOptions options, uint64_t seed);
  ~BadPeer();
  BadPeer(const BadPeer&) = delete;
  BadPeer& operator=(const BadPeer&) = delete;

  // One thing that it says; now and then it goes away and comes back.
  void Step();

 private:
  class Link;

  peer::v1::PeerIntroduction Introduction();
  peer::v1::PeerHello Hello();
  void SayEvents();
  peer::v1::PeerEvent Event();
  peer::v1::PeerEvent Answer();
  void FillOffer(peer::v1::Offer& offer);
  void SayOnSocket();
  void ServeOwnSocket();

  const BadPeerOptions options_;
  Nonsense nonsense_;
  std::unique_ptr<Link> link_;
  std::unique_ptr<RawSocket> socket_;  // to their peer.sock
  BadData data_;
  uint64_t sequence_ = 0;
  uint64_t next_event_ = 1;
  uint64_t offers_ = 0;
  UniqueFd listener_;
  std::vector<RawSocket> accepted_;
  std::atomic<bool> stops_{false};
  std::thread server_;
};

}  // namespace ferry::testing
