// SPDX-License-Identifier: Apache-2.0
// What two engines tell each other about one transfer or one group, as plain data: the meaning of
// each step is in proto/ferry/peer/v1/peer.proto, which daemon/rpc/peer_codec codes these to and
// from. `transfer` is the source daemon's id of the send, but for Seek and Sought.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transfer/clique/group.h"
#include "transfer/types.h"

namespace ferry {

struct Offer {
  TransferId transfer;  // of a convoy (MatchKey::count) the first one's
  MatchKey key;
  uint64_t bytes = 0;  // of all of a convoy
  DataType data_type = DataType::kUnspecified;
  Shape shape;
  Layout layout;
  bool ready = true;
  absl::Duration deadline = absl::InfiniteDuration();  // what is left of it
  int32_t priority = 0;
  Route route = Route::kUnspecified;
  bool prepared = false;
  uint32_t slot = 0;       // prepared: of the link page, 0 if none was left
  uint32_t uid = 0;        // of the client at the source
  bool continues = false;  // the send continues a transfer that is in flight at the source
};
// Source to destination: take apart the convoy that this offer was of. If it is matched, it stays a
// convoy, and `status`, unless OK, withdraws all of it as Withdraw does.
struct Split {
  TransferId transfer;
  absl::Status status;
};
// Destination to source: the convoy's offer is now as many offers, of ids that follow each other,
// and each goes its own way.
struct Apart {
  TransferId transfer;
};
struct Matched {
  TransferId transfer;
};
struct Ready {
  TransferId transfer;
};
struct Go {
  TransferId transfer;
  uint32_t attempt = 0;
  Route route = Route::kUnspecified;
  uint64_t tag = 0;  // see Launch::tag; prepared, on nccl: PairName::transfer of the bundle
  int32_t priority = 0;
};
// What waits at a node instead of a half that was not posted there, for people, the likeliest to be
// meant first.
using NearTexts = std::vector<std::string>;
inline constexpr size_t kMostNearTexts = 3;
inline constexpr size_t kMostNearBytes = 512;  // of each

struct Done {
  TransferId transfer;
  absl::Status status;
  Route route = Route::kUnspecified;
  // Set only in the answer to a Withdraw of an unmatched send at its deadline: the halves that wait
  // in its place. Null: no search was made.
  std::optional<NearTexts> near = std::nullopt;
};
struct Withdraw {
  TransferId transfer;
  absl::Status status;
};
struct SendFailed {
  TransferId transfer;
  uint32_t attempt = 0;
  absl::Status status;
};

// Destination to source: is there a send of this key, or one of its name to a device that is not
// ours? Asked at the deadline of a receive, and when a receive is posted of whose key a send has
// ended. `transfer` is the receive's id.
struct Seek {
  TransferId transfer;
  MatchKey key;
};
// The answer, if there was time to look.
struct Sought {
  TransferId transfer;
  std::optional<NearTexts> near;
};

// The daemon takes no new posts, or does again. `left`: what is in flight there is ended after
// that; infinite: nobody has said when. `empty`: nothing is.
struct Draining {
  bool on = false;
  absl::Duration left = absl::InfiniteDuration();
  bool empty = false;
};

// A daemon says how many members a domain has on one of its devices (transfer/members.h).
struct MembersTold {
  GlobalDeviceId device;
  std::string domain;
  uint32_t count = 0;  // members now; 0: the last one is gone
  std::string last;    // that one's name, if `count` is 0; "" if the daemon does not know it
};

// --- Groups (route nccl). The leader of a clique and its follower; `number` counts the clique's
// groups, `attempt` the openings of its communicator.

// Leader to follower: open your rank of this attempt with this id.
struct OpenComm {
  Clique clique;
  uint32_t attempt = 0;
  std::string unique_id;
};
// Follower to leader: have the communicator open, though nothing waits for it.
struct WarmComm {
  Clique clique;
};

// Destination to source, which leads their clique: the pair is ready, put it into groups.
// `unstaged`: the transfer is in one piece of memory at both ends.
struct HandOver {
  TransferId transfer;
  int32_t priority = 0;
  bool unstaged = false;
};
// Destination to source: put no further chunk of this pair into groups.
struct TakeBack {
  TransferId transfer;
};
// Follower to leader: its end wants the next firing of this bundle. `priority` is as in HandOver;
// `unstaged`: all transfers of the bundle are in one piece of memory at both ends, and so large
// that none is packed. Both count if the follower is the destination.
struct Fire {
  Clique clique;
  PairName bundle;
  int32_t priority = 0;
  bool unstaged = false;
};
// Leader to follower: the next group, and the grant of the leader's lane. A firing is in groups of
// its own.
struct Group {
  Clique clique;
  uint32_t attempt = 0;
  uint64_t number = 0;
  std::vector<Chunk> chunks;
};
// Follower to leader: its lane is granted too, so the group is launched, but for these chunks (by
// index, ascending), whose pairs are over.
struct Granted {
  Clique clique;
  uint32_t attempt = 0;
  uint64_t number = 0;
  std::vector<uint32_t> refused;
};
// Follower to leader: the group `number` failed here. `number` 0: no group failed, but the
// communicator. If that could not be had (ROUTE_UNAVAILABLE), nothing waits for it here any more.
struct GroupFailed {
  Clique clique;
  uint32_t attempt = 0;
  uint64_t number = 0;
  absl::Status status;
};
// Leader to follower: no further group goes on this attempt. If `status` is OK the follower closes
// the communicator once its groups are over, and then sends AttemptOver back; only then the leader
// ends its rank. Else the follower aborts the communicator now, with all its groups. `number`: the
// group that failed, or 0 as in GroupFailed.
struct AttemptOver {
  Clique clique;
  uint32_t attempt = 0;
  uint64_t number = 0;
  absl::Status status;
};
// Follower to leader: close this attempt. Without `busy` the leader does so only if the attempt is
// idle; with `busy` once the groups on their way are over.
struct Evict {
  Clique clique;
  uint32_t attempt = 0;
  bool busy = false;
};

using PeerMessage =
    std::variant<Offer, Matched, Ready, Go, Done, Withdraw, SendFailed, HandOver, TakeBack, Group,
                 Granted, GroupFailed, AttemptOver, Evict, OpenComm, WarmComm, Fire, Seek, Sought,
                 Draining, MembersTold, Split, Apart>;

// What is said at once on a link, but for its hello.
struct PeerEvents {
  std::vector<PeerMessage> messages;
  std::vector<ArenaId> arenas_gone;
  // The number of the first event among those of its link and direction, from 1. 0: there is none.
  uint64_t first_event = 0;
  // The sender has split what it does for long. Its next frame follows as soon as it is made, and
  // the pairs of that frame may go into one group with the pairs of this one.
  bool more = false;

  uint64_t events() const { return messages.size() + arenas_gone.size(); }
};

}  // namespace ferry
