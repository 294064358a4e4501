// SPDX-License-Identifier: Apache-2.0
// The callers: daemons that have opened a stream, said who they are, and not proven it yet. A
// caller is no link, and nothing that it says counts. A caller that fails loses its own stream and
// disturbs nobody else.
//
// With a shared secret a caller proves itself on its stream. Without one it does so on our
// peer.sock: there it shows the nonce that we said on the stream, so we know which caller it is.
// Refuses the oldest caller when there are more than kMost, and a caller that has proven nothing
// within kPatience. Owns the callers' streams. Home: control. Owner: PeerTable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/peer/introduction.h"
#include "daemon/peer/peer_socket.h"
#include "daemon/peer/peer_stream.h"

namespace ferry {

class Callers {
 public:
  // A stream that another daemon has opened and whose introduction says that it is `peer`. It
  // belongs to no link until that is proven, and the link of `peer` does not know of it.
  struct Caller {
    PeerId peer;
    std::unique_ptr<PeerStream> stream;
    PeerIntroduction ours, theirs;
    absl::Time since;
  };

  static constexpr size_t kMost = 64;
  static constexpr absl::Duration kPatience = absl::Seconds(5);

  Callers(Executor& control, const OwnDaemon& own) : control_(control), own_(own) {}

  // Refuses the oldest caller if there is no room for another one.
  void MakeRoom();
  // Introduces us to a caller, whose stream has this number. With a shared secret it is proven to
  // the caller who we are. Call MakeRoom before.
  void Add(uint64_t number, PeerId peer, std::unique_ptr<PeerStream> stream,
           PeerIntroduction theirs);

  // Null: the stream of this number is no caller's.
  const Caller* Find(uint64_t number) const;
  // Whether the frame, of the caller's stream, proves with the shared secret who the caller is.
  bool IsProof(const Caller& caller, const PeerFrame& frame) const;
  // The number of the caller that proves with this hello at our peer.sock who it is. None: no
  // caller does, or there is a shared secret.
  std::optional<uint64_t> FindProven(const PeerSocketHello& hello) const;

  // The caller has proven who it is, and is none any more.
  Caller Take(uint64_t number);
  // The caller has closed its stream. Does nothing if the number is no caller's.
  void Forget(uint64_t number);
  // Tells a caller why, and closes its stream. RefuseAllOf: all that say that they are `peer`.
  void Refuse(uint64_t number, const absl::Status& why);
  void RefuseAllOf(PeerId peer, const absl::Status& why);
  void RefuseAll(const absl::Status& why);
  // Refuses callers that came too long ago. Returns when to be called again.
  absl::Time OnTime(absl::Time now);

 private:
  Executor& control_;
  const OwnDaemon& own_;
  std::map<uint64_t, Caller> callers_;  // by the number of the stream; the oldest first
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
