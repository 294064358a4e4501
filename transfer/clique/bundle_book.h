// SPDX-License-Identifier: Apache-2.0
// BundleBook fires prepared transfers of route nccl. They are armed at both ends, like those of
// mapped, and fired in groups, like the transfers of nccl: the lanes see the words of their ends
// (OnWanted), the follower of the clique says so to its leader (Fire), and the leader hands a
// firing that both ends want to GroupLeader as if it were one transfer. So the order of lanes is
// decided as for all groups, and a firing of a thousand transfers is a few messages.
//
// An example. Batch 7 of node-a (the leader) sends four tensors to batch 9 of node-b; all eight
// halves have joined the bundle ({to_low: false, transfer: 9's first receive, slot: 3}). node-b's
// word allows firing 12: node-b says Fire. node-a's word allows it too: the leader takes the load
// of all four tensors' bytes, cuts it into groups, and both ends count it as moved. Then
// Bundle::wanted is false at both ends, until their words allow firing 13.
//
// Pure: time is an argument. Home: control (owned by Cliques).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/home.h"
#include "transfer/clique/bundle.h"
#include "transfer/clique/clique_context.h"
#include "transfer/clique/comm_book.h"
#include "transfer/clique/group_leader.h"

namespace ferry {

class BundleBook {
 public:
  BundleBook(const CliqueContext& context, GroupLeader& leader, CommBook& comms)
      : context_(context), leader_(leader), comms_(comms) {}

  Bundle* Find(uint64_t number) const;  // null: it is over, or 0
  // Whether a half may join the bundle of this name. False once a firing of the bundle has begun or
  // is wanted: by then all transfers of the batch were armed. False too if this daemon can have no
  // groups with the peer.
  bool MayJoin(PeerId peer, const Clique& clique, const PairName& name) const;
  // A half joins the bundle of name `half.name`, and stays until Leave. `half.bytes`: the bytes of
  // this half alone. The first half that joins makes the bundle. Returns the bundle's number.
  uint64_t Join(const Load& half, TransferId batch, uint32_t batch_size);
  // A half of the bundle has ended. The bundle goes with its last half.
  void Leave(uint64_t number);
  // No firing of the bundle begins any more.
  void Break(Bundle& bundle);
  // If a group carries a firing of the bundle, the abort of the half is ordered when none does any
  // more. False if none carries one now, or if there is no such bundle: then the caller orders the
  // abort.
  bool LeavesLater(uint64_t number, TransferId half, const absl::Status& why);

  // The word of our end allows the next firing.
  void OnWanted(uint64_t number);
  bool OnFire(PeerId peer, const Fire& message);
  // The load of the bundle that a chunk names, if the chunk may go into a group with this peer;
  // else null.
  Load* ToCarry(PeerId peer, const Clique& clique, const Chunk& chunk) const;
  // A group is over that carried the firing: orders the aborts that waited for that, or makes ready
  // for the next firing. Returns the error of a failed chunk; then the caller ends the bundle.
  absl::Status Settle(Bundle& bundle);
  // The link is lost: nothing more is fired with this peer.
  void OnPeerLost(PeerId peer);
  // The numbers of the bundles that receive on this clique and wait for a group.
  std::vector<uint64_t> Waiting(const Clique& clique) const;
  // Whether our lane gathers the load's bytes from several places before it sends them.
  bool Gathers(const Load& load) const;

 private:
  using Name = std::pair<Clique, PairName>;

  // Whether a group of the bundle needs no bound by staging (GroupCutter::Options::direct_bytes).
  // Called once all halves have joined.
  bool IsUnstaged(const Bundle& bundle) const;
  // At the leader: hands the next firing over if both ends want it.
  void TryFire(Bundle& bundle);
  Bundle* Named(const Clique& clique, const PairName& name) const;

  const CliqueContext& context_;
  GroupLeader& leader_;
  CommBook& comms_;
  absl::btree_map<uint64_t, std::unique_ptr<Bundle>> bundles_;  // loads stay where they are
  absl::flat_hash_map<Name, Bundle*> by_name_;
  uint64_t next_number_ = 1;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
