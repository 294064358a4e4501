// SPDX-License-Identifier: Apache-2.0
// Tombstones: how halves ended that had found no partner, for the partner that is posted later. It
// is told at once instead of waiting for its deadline. Kept at the destination's daemon, where
// halves meet. Pure: time is an argument. Home: control (owned by TransferEngine).
//
// Invariant: a key has one tombstone at most, and none while a half waits under it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transfer/matcher.h"
#include "transfer/types.h"

namespace ferry {

class Tombstones {
 public:
  static constexpr absl::Duration kLife = absl::Minutes(10);

  // Of the first `peers`. For each peer at most `most` tombstones of `most_bytes` of keys and
  // texts: the oldest is forgotten.
  Tombstones(size_t peers, size_t most, uint64_t most_bytes)
      : most_(most), most_bytes_(most_bytes), of_peers_(peers) {}

  // There is one peer more.
  void AddPeer() { of_peers_.emplace_back(); }

  struct Tombstone {
    MatchKey key;
    Side side = Side::kSend;  // of the half that has ended
    absl::Status why;
    absl::Time ended;
  };

  bool empty() const { return by_key_.empty(); }
  // A half of `key`, whose other end is `peer`'s (this daemon's own: within it), has ended without
  // a partner. Replaces what there is of the key.
  void Put(PeerId peer, Tombstone tombstone);
  // A half of `side` is posted: takes what there is of its key. Given back if it is of the other
  // side; of its own side it has a successor now.
  std::optional<Tombstone> Take(absl::Time now, Side side, const HashedKey& key);
  // Whether there is anything of the key.
  bool Contains(const HashedKey& key) const { return by_key_.contains(key); }
  // The link to the peer is lost: what its halves were is not known to its next life.
  void Forget(PeerId peer);
  // Forgets what is over its time, at most `most` tombstones.
  void Expire(absl::Time now, size_t most);
  // Not after the next one is; infinite: there is none.
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
  absl::flat_hash_map<HashedKey, Place> by_key_;  // of the keys in the lists
  absl::Time next_expiry_ = absl::InfiniteFuture();
};

}  // namespace ferry
