// SPDX-License-Identifier: Apache-2.0
// Cliques carries loads in groups of route nccl: which group has which chunk, when it is launched,
// and what becomes of its loads when it is over. What becomes of groups that fail or hang, and when
// a communicator is ended, AttemptEnds decides. Cliques knows a transfer by its Load only.
// TransferEngine hands loads over (Carry), and is told by TakeEvents which of them groups carry,
// and which none carries any more.
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
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/clique/attempt_ends.h"
#include "transfer/clique/bundle_book.h"
#include "transfer/clique/clique_context.h"
#include "transfer/clique/comm_book.h"
#include "transfer/clique/group_book.h"
#include "transfer/clique/group_leader.h"
#include "transfer/clique/load.h"

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
// The communicator could not be had. Receives of this daemon take another route now. The peer does
// the same with its receives.
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
  std::vector<CliqueEvent> TakeEvents() {
    home_.Check();
    return std::exchange(events_, {});
  }

  BundleBook& bundles() {
    home_.Check();
    return bundles_;
  }
  const BundleBook& bundles() const { return bundles_; }
  CommBook& comms() {
    home_.Check();
    return comms_;
  }
  const CommBook& comms() const { return comms_; }
  AttemptEnds& attempt_ends() {
    home_.Check();
    return attempt_ends_;
  }
  // Whether this daemon leads the clique, with `peer` as the follower, and its groups could be
  // launched here.
  bool LedByUs(PeerId peer, const Clique& clique) const { return context_.LedByUs(peer, clique); }
  // Loads that wait for a group here, in cliques that we lead.
  size_t waiting() const { return leader_.waiting(); }
  // Groups that ask for a lane or run.
  size_t groups() const { return groups_.size(); }

  // --- From the engine: loads of transfers. A load stays where it is until Forget.

  // Asks the clique's leader to put the load into groups. `unstaged`: the transfer is in one piece
  // of memory at both ends. False if we are the leader and a load of this name waits already.
  bool Carry(Load& load, int32_t priority, bool unstaged);
  // Takes back from the leader what of the load is in no group yet.
  void TakeRest(Load& load);
  // As TakeRest, and keeps `why` in the load. False if the load had a reason before: nothing is
  // done then.
  bool Drop(Load& load, absl::Status why);
  // The load's half has ended, so the load goes. Precondition: no group has a chunk of the load.
  void Forget(Load& load);

  // --- From the engine: peers, and lanes.

  void OnPeerUp(PeerId peer) {
    home_.Check();
    peers_[peer].up = true;
  }
  // Ends what is agreed with the peer. Afterwards only launched groups pin loads of this peer.
  void OnPeerLost(PeerId peer, const absl::Status& why);
  // The peer has said whether more pairs are about to come: groups wait for them.
  void OnMore(PeerId peer, bool more);
  bool HasMore(PeerId peer) const;

  // Asks for the lanes of groups that are due, and goes on with the groups whose lanes were
  // granted.
  void Run();
  // A lane has answered a group. Returns the group's clique, with which the caller calls
  // AttemptEnds::CloseQuiet once it has handled the events; none if the group was over already.
  std::optional<Clique> OnGroupDone(uint64_t id, const absl::Status& status);
  // When Run, or AttemptEnds::OnTime, has something to do because of time alone.
  absl::Time NextTime() const;

  // --- From peers. Each is false for a message that makes no sense.

  bool OnGroup(PeerId peer, const Group& message);
  bool OnGranted(PeerId peer, const Granted& message);

 private:
  struct OfPeer {
    bool up = false;
    absl::Time more_until = absl::InfinitePast();
  };

  // The load that the chunk belongs to, if the chunk may go into the group; else null.
  Load* ToCarry(const GroupRecord& group, const Chunk& chunk);
  // Puts the chunk into the group. False if the chunk may not go there.
  bool Pin(GroupRecord& group, const Chunk& chunk);
  // A chunk is over with `status`, or OK if it was never launched; `moved` of its bytes arrived.
  void Unpin(const GroupRecord::Carried& carried, uint64_t moved, const absl::Status& status);
  // Adds an event for each of these loads that no group carries any more.
  void Settle(const std::vector<GroupRecord::Carried>& all);
  void OnLaneGranted(GroupRecord& group);
  void Cut(GroupRecord& group);
  // How many bytes a group of large loads may have.
  uint64_t RoomFor(const Clique& clique) const;
  // Lets our lane gather the firings of a group that waits for the other end's lane.
  void OrderAhead(const GroupRecord& group);
  static std::vector<GroupChunk> ChunksOf(const GroupRecord& group);
  void Launch(GroupRecord& group);
  std::unique_ptr<GroupRecord> Erase(uint64_t id);
  // What a group's time says of the clique's speed, and of the SMs of both ends, on which the group
  // has kernels.
  void MeasureSpeed(const GroupRecord& group);
  void MeasureSms(const GroupRecord& group);

  const CliqueContext context_;
  const FindLoad find_load_;
  GroupLeader leader_;
  CommBook comms_;
  BundleBook bundles_;
  GroupBook groups_;
  AttemptEnds attempt_ends_;
  absl::flat_hash_map<PeerId, OfPeer> peers_;
  std::vector<CliqueEvent> events_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
