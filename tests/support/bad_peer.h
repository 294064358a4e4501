// SPDX-License-Identifier: Apache-2.0
// A malicious daemon of the membership: proves properly who it is and says a good hello on the peer
// port, has a peer.sock with a link page of its own, and then sends valid and invalid messages on
// the link, on the other daemon's peer.sock, in its page and on data connections, from a seed. Only
// Introduction and Hello know what a good hello is. One thread; other threads read what it hears.
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
  std::string secret;             // the cluster's secret
  std::string node;               // its node's name, the smaller of the two, so that it dials
  std::vector<uint64_t> devices;  // devices of that node
  std::vector<uint64_t> theirs;   // devices of the other daemon
  std::string address;            // address of the other daemon's peer port
  std::string their_socket;       // the other daemon's peer.sock
  std::string own_socket;         // where its own peer.sock must be
  uint64_t bytes = 0;  // size of each transfer that others receive from it, keys v0 to v7
};

class BadPeer {
 public:
  BadPeer(BadPeerOptions options, uint64_t seed);
  ~BadPeer();
  BadPeer(const BadPeer&) = delete;
  BadPeer& operator=(const BadPeer&) = delete;

  // Sends one thing; now and then goes away and comes back.
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
  std::unique_ptr<RawSocket> socket_;  // connection to the other daemon's peer.sock
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
