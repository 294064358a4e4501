// SPDX-License-Identifier: Apache-2.0
// Somebody who speaks the daemons' own protocol on a peer port and says what it likes: one who
// calls a daemon, and one who sits where a daemon should. gRPC's headers stay out of here. Any
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ferry/peer/v1/peer.pb.h"
#include "tests/support/await.h"

namespace ferry::testing {

// An introduction as node `name` of this host might say it.
peer::v1::PeerIntroduction IntroductionOf(const std::string& name);

// The hello of a daemon that has these devices.
peer::v1::PeerHello HelloOf(const std::vector<uint64_t>& devices);

// The proof of who dialled as `ours` and was answered `theirs`.
std::string DiallersProof(const std::string& secret, const peer::v1::PeerIntroduction& ours,
                          const peer::v1::PeerIntroduction& theirs);

// The key of their link.
std::string DiallersKey(const std::string& secret, const peer::v1::PeerIntroduction& ours,
                        const peer::v1::PeerIntroduction& theirs);

// One PeerService.Link to the daemon at `address`.
class LyingCaller {
 public:
  explicit LyingCaller(const std::string& address);
  ~LyingCaller();
  bool Say(const peer::v1::Frame& frame);
  // The next frame; nothing once the daemon has ended the stream.
  std::optional<peer::v1::Frame> Hear();
  // Introduces itself as `introduction` and proves it, as one that has the secret; says `hello` in
  // the same frame, and hears the daemon's. False if the daemon does not say one.
  bool Prove(const peer::v1::PeerIntroduction& introduction, const std::string& secret,
             const peer::v1::PeerHello& hello);
  // Of the link, once that is proven.
  const std::string& key() const { return key_; }
  // Hears until the daemon ends the stream, and how it did: "PERMISSION_DENIED/NOT_ALLOWED".
  std::string AwaitEnd();

 private:
  struct Call;
  const std::unique_ptr<Call> call_;
  std::string key_;
};

// How a knock was answered, as AwaitEnd.
std::string KnockAt(const std::string& address, const std::string& node);

// Listens on `port` of 127.0.0.1 as a daemon: answers each caller's introduction with `answer`, and
// keeps what it hears; or ends the stream then with `last_words`.
class LyingListener {
 public:
  LyingListener(int port, peer::v1::Frame answer, std::string last_words = "");
  ~LyingListener();
  size_t callers() const;
  // All frames that callers sent, one after the other.
  std::vector<peer::v1::Frame> heard() const;

 private:
  class Service;
  struct Server;
  const std::unique_ptr<Service> service_;
  const std::unique_ptr<Server> server_;
};

}  // namespace ferry::testing
