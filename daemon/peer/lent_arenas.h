// SPDX-License-Identifier: Apache-2.0
// Which of our arenas each peer may ask for and map: those that our offers to it have named, as
// long as its link lives. Example: an offer to node-c names arena 7, which is then lent to node-c.
// When arena 7 is released, Take answers node-c, which must be told. When the link to node-c is
// lost, nothing is lent to it any more.
//
// Owns no memory. Home: control. Owner: PeerTable.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/home.h"
#include "base/ids.h"
#include "transfer/layout.h"

namespace ferry {

class LentArenas {
 public:
  // An offer to the peer names the arenas of this layout.
  void Lend(PeerId peer, const Layout& layout);
  bool IsLent(ArenaId arena, PeerId to) const;
  // The arena is gone: it is lent to nobody any more. Returns the peers that it was lent to, in the
  // order of the lending.
  std::vector<PeerId> Take(ArenaId arena);
  // The link to the peer is lost.
  void ForgetPeer(PeerId peer);

 private:
  struct OfPeer {
    absl::flat_hash_set<ArenaId> arenas;
    ArenaId last;  // the one of `arenas` that was added last: the next offer often names it again
  };
  // Invariant: a peer is in to_[arena] if, and only if, the arena is in peers_[peer].arenas.
  absl::flat_hash_map<PeerId, OfPeer> peers_;
  absl::flat_hash_map<ArenaId, std::vector<PeerId>> to_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
