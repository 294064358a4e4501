// SPDX-License-Identifier: Apache-2.0
// Speaks the daemons' own protocol on a peer port and says what a test likes: as a caller of a
// daemon, or in a daemon's place. Needs none of gRPC's headers. Any thread.
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

// An introduction that node `name` of this host might say.
peer::v1::PeerIntroduction IntroductionOf(const std::string& name);

// The hello of a daemon with these devices.
peer::v1::PeerHello HelloOf(const std::vector<uint64_t>& devices);

// The proof of a daemon that has dialled as `ours` and was answered by `theirs`.
std::string DiallersProof(const std::string& secret, const peer::v1::PeerIntroduction& ours,
                          const peer::v1::PeerIntroduction& theirs);

// The key of their link.
std::string DiallersKey(const std::string& secret, const peer::v1::PeerIntroduction& ours,
                        const peer::v1::PeerIntroduction& theirs);

// A caller with one PeerService.Link to the daemon at `address`.
class LyingCaller {
 public:
  explicit LyingCaller(const std::string& address);
  ~LyingCaller();
  bool Say(const peer::v1::Frame& frame);
  // The next frame; nothing once the daemon has ended the stream.
  std::optional<peer::v1::Frame> Hear();
  // Introduces itself as `introduction`, proves it with `secret`, says `hello` in the same frame,
  // and waits for the daemon's hello. False if the daemon says none.
  bool Prove(const peer::v1::PeerIntroduction& introduction, const std::string& secret,
             const peer::v1::PeerHello& hello);
  // The key of the link; valid after Prove.
  const std::string& key() const { return key_; }
  // Reads until the daemon ends the stream. Returns how it did: "PERMISSION_DENIED/NOT_ALLOWED".
  std::string AwaitEnd();

 private:
  struct Call;
  const std::unique_ptr<Call> call_;
  std::string key_;
};

// How a knock was answered, in the form of AwaitEnd.
std::string KnockAt(const std::string& address, const std::string& node);

// Listens on `port` of 127.0.0.1 in a daemon's place. Answers each caller's introduction with
// `answer`, and keeps what it hears; or, with `last_words`, ends the stream then.
class LyingListener {
 public:
  LyingListener(int port, peer::v1::Frame answer, std::string last_words = "");
  ~LyingListener();
  size_t callers() const;
  // The frames of all callers, in the order in which they came.
  std::vector<peer::v1::Frame> heard() const;

 private:
  class Service;
  struct Server;
  const std::unique_ptr<Service> service_;
  const std::unique_ptr<Server> server_;
};

}  // namespace ferry::testing
