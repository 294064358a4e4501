// SPDX-License-Identifier: Apache-2.0
// Tombstones: how halves ended that had found no partner. A partner that is posted later is told at
// once, instead of at its deadline. Kept at the destination's daemon, where halves meet. Pure: time
// is an argument. Home: control (owned by TransferEngine).
//
// Invariant: a key has at most one tombstone, and none while a half waits under it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "transfer/matcher.h"
#include "transfer/types.h"

namespace ferry {

class Tombstones {
 public:
  static constexpr absl::Duration kLife = absl::Minutes(10);

  // `peers`: the number of peers at first. Each peer has at most `most` tombstones, with
  // `most_bytes` of keys and texts; beyond that its oldest is forgotten.
  Tombstones(size_t peers, size_t most, uint64_t most_bytes)
      : most_(most), most_bytes_(most_bytes), of_peers_(peers) {}

  // There is one peer more.
  void AddPeer() {
    home_.Check();
    of_peers_.emplace_back();
  }

  struct Tombstone {
    MatchKey key;
    Side side = Side::kSend;  // the side of the half that has ended
    absl::Status why;
    absl::Time ended;
  };

  bool empty() const { return by_key_.empty(); }
  // A half of `key` has ended without a partner. `peer` is the daemon of its other end (this
  // daemon's own, for a transfer within it). Replaces the key's tombstone, if there is one.
  void Put(PeerId peer, Tombstone tombstone);
  // A half of `side` has ended with `why` without a partner: Put, if its partner is to be told,
  // which is so if it was cancelled, poisoned or late, or its client died.
  void Leave(absl::Time now, PeerId peer, Side side, const MatchKey& key, const absl::Status& why);
  // A half of `side` is posted: removes the key's tombstone. Returns it if it is of the other side;
  // a half of the same side is the ended one's successor.
  std::optional<Tombstone> Take(absl::Time now, Side side, const HashedKey& key);
  // Whether the key has a tombstone.
  bool Contains(const HashedKey& key) const { return by_key_.contains(key); }
  // The link to the peer is lost: its next life does not know what its halves were.
  void Forget(PeerId peer);
  // Forgets tombstones that are older than kLife, at most `most` of them.
  void Expire(absl::Time now, size_t most);
  // Expire() has nothing to do before this; infinite: there is no tombstone.
  absl::Time NextExpiry() const { return next_expiry_; }
  size_t size(PeerId peer) const { return of_peers_[peer.value()].oldest_first.size(); }

 private:
  using List = std::list<Tombstone>;
  struct OfPeer {
    List oldest_first;
    uint64_t bytes = 0;
  };
  struct Place {
    PeerId peer;
    List::iterator entry;
  };
  static uint64_t BytesOf(const Tombstone& tombstone);
  Tombstone Remove(Place place);

  const size_t most_;
  const uint64_t most_bytes_;
  std::deque<OfPeer> of_peers_;
  absl::flat_hash_map<HashedKey, Place> by_key_;  // by the keys in the lists
  absl::Time next_expiry_ = absl::InfiniteFuture();
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
