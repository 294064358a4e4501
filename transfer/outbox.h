// SPDX-License-Identifier: Apache-2.0
// What TransferEngine wants done, as plain data: its driver takes an Outbox after each call of the
// engine, or after several, and tells the engine what came of it. Home: control.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transfer/clique/group.h"
#include "transfer/peer_message.h"
#include "transfer/types.h"

namespace ferry {

// The half of a launch that this daemon's lane runs.
enum class LaunchRole : uint8_t {
  kCopy,     // local, mapped: one-sided, at the destination: remote bytes -> own bytes
  kReceive,  // tcp, ucx, and what is armed on nccl: the destination's half
  kSend,     // tcp, ucx, and what is armed on mapped or nccl: the source's half
};

// Of a launch that lasts until it is aborted: what fires it.
struct Armed {
  uint32_t batch = 0;  // of the session's prepared batches
  // local: the send, and its session's prepared batch.
  TransferId source;
  uint32_t source_batch = 0;
  uint32_t slot = 0;  // mapped: of the source's link page
  // nccl: the number of the bundle, and the transfer's place in it. The bundle's bytes are those of
  // its transfers by ascending `place`.
  uint64_t bundle = 0;
  uint64_t place = 0;
};

struct Launch {
  TransferId transfer;  // ours
  uint32_t attempt = 0;
  Route route = Route::kUnspecified;
  LaunchRole role = LaunchRole::kCopy;
  PeerId peer;                   // the other daemon; self for local
  GlobalDeviceId device;         // ours: whose lane runs it
  GlobalDeviceId remote_device;  // the other end
  uint64_t tag = 0;              // kReceive, kSend: unique among this peer pair's transfers
  int32_t priority = 0;          // see FairQueue
  bool prompt = false;           // TransferSpec::prompt of the receive
  uint64_t bytes = 0;
  Layout layout;         // ours
  Layout remote_layout;  // kCopy: of the source
  std::optional<Armed> armed;
};

// Our part of one chunk of a group.
struct GroupChunk {
  TransferId transfer;  // ours
  Side side = Side::kSend;
  uint64_t offset = 0;  // into the bytes of `layout`
  uint64_t bytes = 0;
  Layout layout;  // of the whole transfer
  // Not 0: the chunk is of a firing of this bundle; `transfer` and `layout` are unset.
  uint64_t bundle = 0;
};

// Our rank of a clique's communicator shall be opened: OnCommunicatorOpened or OnCommunicatorFailed
// follows, unless a CommunicatorEnd comes first.
struct CommunicatorOpen {
  Clique clique;
  uint32_t attempt = 0;
  PeerId peer;
  GlobalDeviceId device;  // ours
  std::string unique_id;  // empty: we lead, and make it (OnCommunicatorId)
};

// Both daemons launch the same groups of an attempt, with the same chunks, in the same order; a
// lane launches its groups one by one, in the order in which they come. At a follower they may come
// while its rank is being opened.
struct GroupLaunch {
  uint64_t ticket = 0;  // for OnGroupDone
  Clique clique;
  uint32_t attempt = 0;
  uint64_t number = 0;
  PeerId peer;
  GlobalDeviceId device;  // ours: whose lane runs it
  std::vector<GroupChunk> chunks;
};

// A group of firings, some of which we send, waits for the other end's lane only. The lane may
// gather what the group sends meanwhile. A GroupLaunch with all or some of these firings follows,
// or none does.
struct GroupAhead {
  uint64_t ticket = 0;
  Clique clique;
  uint32_t attempt = 0;
  std::vector<GroupChunk> chunks;
};

// No further group is launched on this attempt of the clique's communicator. CommunicatorEnd
// follows: at the follower once its own groups are over, at the leader once those of both daemons
// are.
struct CommunicatorClosing {
  Clique clique;
  uint32_t attempt = 0;
};

// No further group is launched on this attempt of the clique's communicator. OK: close it when its
// groups are answered. Else: abort it; its groups are still answered, each once.
struct CommunicatorEnd {
  Clique clique;
  uint32_t attempt = 0;
  absl::Status status;
};
using GroupOrder =
    std::variant<CommunicatorOpen, GroupAhead, GroupLaunch, CommunicatorClosing, CommunicatorEnd>;

// A transfer is over, or all of a convoy, in the same way. Each posted transfer appears here
// exactly once.
struct Ended {
  TransferId transfer;  // the first one's
  // As many transfers, with ids and 'over' values that follow each other.
  uint32_t count = 1;
  Side side = Side::kSend;
  GlobalDeviceId source, destination;
  uint32_t over_timeline = 0;
  uint64_t over_value = 0;
  bool prepared = false;
  absl::Status status;
  Route route = Route::kUnspecified;  // the one launched last, if any
  uint64_t bytes = 0;                 // of each
  absl::Time posted;
  Layout layout;              // what it pinned; of all
  uint64_t record_bytes = 0;  // TransferSpec's; of all
};

// Call TransferEngine::OnDefined(transfer) when the word reaches `value`. Of a posted half the word
// is a 'defined' counter of its session. Of a prepared half on ucx it is the word by which its
// client allows the next firing.
struct WordWatch {
  TransferId transfer;
  GlobalDeviceId device;
  uint32_t timeline = 0;
  uint64_t value = 0;
  // `timeline` is the number of a prepared batch, `value` the number of a firing. The watch for
  // firing 1 also tells the driver that the half is armed.
  bool prepared = false;
};

struct Fired {  // ucx: one firing of a prepared transfer is over
  TransferId transfer;
  uint32_t batch = 0;
  uint64_t firing = 0;
};

struct Fallback {  // a launch on `from` was not possible; the next route is tried
  TransferId transfer;
  Route from = Route::kUnspecified;
  Route to = Route::kUnspecified;  // kUnspecified: there was none
  std::string why;
};

struct Outbox {
  std::vector<std::pair<PeerId, PeerMessage>> messages;  // in order per peer
  std::vector<Launch> launches;
  std::vector<std::pair<TransferId, absl::Status>>
      aborts;                      // of launches that were not answered yet
  std::vector<GroupOrder> groups;  // in order
  std::vector<WordWatch> watches;
  std::vector<TransferId> unwatch;   // watches that nobody needs any more
  std::vector<PeerId> wanted_peers;  // links to open
  std::vector<Ended> ended;
  std::vector<Fired> fired;
  std::vector<Fallback> fallbacks;
  std::vector<TransferId> long_waits;  // have waited for long, not launched yet; each once
  bool empty() const {
    return messages.empty() && launches.empty() && aborts.empty() && groups.empty() &&
           watches.empty() && unwatch.empty() && wanted_peers.empty() && ended.empty() &&
           fired.empty() && fallbacks.empty() && long_waits.empty();
  }
};

}  // namespace ferry
