// SPDX-License-Identifier: Apache-2.0
// Cliques carries loads in groups of route nccl: which group has which chunk, when it is launched,
// what becomes of it when it is over, fails or hangs, and when a communicator is opened and ended.
// It knows a transfer by its Load only. TransferEngine hands loads over (Carry), and is told by
// CliqueEvents which of them groups carry, and which none carries any more.
//
// Leader and follower of a clique run the same code on a GroupRecord each; only the leader cuts
// groups, numbers the attempts of the communicator and decides when one ends. The follower tells it
// what it sees.
//
// A load is pinned from when its daemon learns of a group with a chunk of it until that group is
// over there: meanwhile its half neither ends nor is cancelled. A destination that has ended a pair
// while a chunk of it was on the way refuses the chunk in its grant, so that both ends launch the
// same list.
//
// An example. Device 0 is node-a's, device 2 node-b's, so node-a leads. Transfers 3/17 and 3/18 go
// from 0 to 2. node-b, the destination, says HandOver of both. node-a cuts them into group 6 of
// attempt 1 when its lane is granted, and says Group{6, [17, 18]}. node-b has just cancelled 3/18:
// it pins 3/17, asks for its own lane, and when that is granted says Granted{6, refused: [1]}. Both
// launch [17]; node-a unpins 3/18.
//
// Pure: time is an argument. Home: control. Owner: TransferEngine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transfer/clique/bundle_book.h"
#include "transfer/clique/clique_context.h"
#include "transfer/clique/group_book.h"
#include "transfer/clique/group_leader.h"
#include "transfer/clique/load.h"
#include "transfer/clique/rank_book.h"

namespace ferry {

// A group carries a chunk of this half.
struct LoadPinned {
  TransferId half;
};
// No group carries this half any more: see its load for how far it has come.
struct LoadSettled {
  TransferId half;
};
// No group carries the firing of this bundle any more: BundleBook::Settle says how it went.
struct FiringSettled {
  uint64_t bundle = 0;
};
// The communicator could not be had. What we receive shall not wait for its next attempt; the other
// end does the same for what it receives.
struct CliqueUnavailable {
  Clique clique;
  absl::Status why;
};
using CliqueEvent = std::variant<LoadPinned, LoadSettled, FiringSettled, CliqueUnavailable>;

class Cliques {
 public:
  // Answers the load of our half of a transfer with a peer, if the half may go, or go on, in groups
  // of this clique; else null.
  using FindLoad = std::function<Load*(PeerId, const Clique&, const PairName&, bool receives)>;

  Cliques(const CliqueContext& context, FindLoad find_load);
  Cliques(const Cliques&) = delete;
  Cliques& operator=(const Cliques&) = delete;

  // What has happened since the last call, in order. Take it after each call.
  std::vector<CliqueEvent> TakeEvents() { return std::exchange(events_, {}); }

  BundleBook& bundles() { return bundles_; }
  const BundleBook& bundles() const { return bundles_; }
  RankBook& ranks() { return ranks_; }
  const RankBook& ranks() const { return ranks_; }
  size_t waiting() const { return leader_.waiting(); }  // loads that no group has all of
  size_t groups() const { return groups_.size(); }      // that ask for a lane or run

  // --- From the engine: loads of transfers. A load stays where it is until Forget.

  // The leader shall put it into groups. `direct`: at both ends it is in one piece of memory. False
  // if the leader, which we are, has a load of this name.
  bool Carry(Load& load, int32_t priority, bool direct);
  // What of it is in no group yet shall not be.
  void TakeRest(Load& load);
  // The same, for this reason. False if there was one before.
  bool Drop(Load& load, absl::Status why);
  // Its half has ended. It is not pinned.
  void Forget(Load& load);

  // --- From the engine: peers, and lanes.

  void OnPeerUp(PeerId peer) { peers_[peer].up = true; }
  // No load of this peer is pinned by a group that was not launched, afterwards.
  void OnPeerLost(PeerId peer, const absl::Status& why);
  // More pairs of this peer are about to come, or are not.
  void OnMore(PeerId peer, bool more);
  bool HasMore(PeerId peer) const;

  // Asks for the lanes of groups that are due, and goes on with the groups whose lanes were
  // granted.
  void Run();
  // A lane has answered a group. The clique that it was of, for CloseQuiet once the events are
  // handled; none: it is over already.
  std::optional<Clique> OnGroupDone(uint64_t id, const absl::Status& status);
  // At a follower: closes the communicators that are to be closed and that no group is on.
  void CloseQuiet(const Clique& clique);
  void OnCommunicatorFailed(const Clique& clique, uint32_t attempt, const absl::Status& status);
  // The communicator shall be closed, if it is idle; `busy`: if it is not, when its groups are
  // over.
  void EvictCommunicator(const Clique& clique, bool busy);
  // Ends one group or opening that takes too long. False: none does.
  bool OnTime();
  absl::Time NextTime() const;

  // --- From peers. Each is false for a message that makes no sense.

  bool OnGroup(PeerId peer, const Group& message);
  bool OnGranted(PeerId peer, const Granted& message);
  bool OnGroupFailed(PeerId peer, const GroupFailed& message);
  bool OnAttemptOver(PeerId peer, const AttemptOver& message);
  bool OnEvict(PeerId peer, const Evict& message);

 private:
  struct OfPeer {
    bool up = false;
    absl::Time more_until = absl::InfinitePast();
  };

  // --- cliques.cc: loads and groups.

  // The load that the chunk is of, if the chunk may go into the group; else null.
  Load* ToCarry(const GroupRecord& group, const Chunk& chunk);
  // False if the chunk may not go into the group.
  bool Pin(GroupRecord& group, const Chunk& chunk);
  // A chunk is over: with this status, or without having been launched.
  void Unpin(const GroupRecord::Part& part, uint64_t moved, const absl::Status& status);
  // Goes on with what no group carries any more.
  void Settle(const std::vector<GroupRecord::Part>& parts);
  void OnLaneGranted(GroupRecord& group);
  void Cut(GroupRecord& group);
  // What a group of large loads may have.
  uint64_t RoomFor(const Clique& clique) const;
  // Of a group of ours that is cut and not granted yet.
  void OrderAhead(const GroupRecord& group);
  static std::vector<GroupChunk> ChunksOf(const GroupRecord& group);
  void Launch(GroupRecord& group);
  std::unique_ptr<GroupRecord> Erase(uint64_t id);
  // What a group's time says of the clique's speed, and of the SMs of both ends, on which the group
  // has kernels.
  void MeasureSpeed(const GroupRecord& group);
  void MeasureSms(const GroupRecord& group);

  // --- cliques_end.cc: what fails, hangs or is not wanted any more.

  void OnLate(GroupRecord& group);
  // A group failed here, or with number 0 the communicator: its attempt shall end at both ends.
  void FailAttempt(const Clique& clique, uint32_t attempt, uint64_t number,
                   const absl::Status& status);
  // What an attempt's end does here, whoever has ended it.
  void AbortAttempt(const Clique& clique, uint32_t attempt, uint64_t number,
                    const absl::Status& status);
  void CloseIdle(const Clique& clique, uint32_t attempt);

  const CliqueContext context_;
  const FindLoad find_load_;
  GroupLeader leader_;
  RankBook ranks_;
  BundleBook bundles_;
  GroupBook groups_;
  absl::flat_hash_map<PeerId, OfPeer> peers_;
  std::vector<CliqueEvent> events_;
};

}  // namespace ferry
