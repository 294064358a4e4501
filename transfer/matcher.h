// SPDX-License-Identifier: Apache-2.0
// TransferMatcher pairs halves by (domain, source, destination, key), never by position. Pure: no
// time, no thread. Home: control (owned by TransferEngine).
//
// Invariant: a key has at most one unmatched half; so an entry holds one half, and the half of the
// other side takes it out. A key whose pair is out may be used again. The key of a half that waits
// is its owner's, and stays where it is until that half is out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/hash/hash.h"
#include "transfer/sharded_map.h"
#include "transfer/types.h"

namespace ferry {

// One half, wherever it was posted: `peer` says whose id `transfer` is (the daemon's own PeerId for
// halves posted here).
struct Half {
  Side side = Side::kSend;
  PeerId peer;
  TransferId transfer;
  bool operator==(const Half&) const = default;
};

// A key and its hash, which a caller that asks several times computes once. Refers to the key.
class HashedKey {
 public:
  HashedKey(const MatchKey& key) : key_(&key), hash_(absl::HashOf(key)) {}  // also implicitly
  bool operator==(const HashedKey& other) const {
    return hash_ == other.hash_ && *key_ == *other.key_;
  }
  template <typename H>
  friend H AbslHashValue(H h, const HashedKey& k) {
    return H::combine(std::move(h), k.hash_);
  }

 private:
  const MatchKey* key_;
  size_t hash_;
};

class TransferMatcher {
 public:
  enum class Outcome { kWaiting, kMatched, kKeyInUse };
  struct Result {
    Outcome outcome = Outcome::kWaiting;
    Half other;  // kMatched: the half that waited; kKeyInUse: the one that holds the key
  };

  // Adds a half, or takes out the one it matches. On kKeyInUse nothing changes.
  Result Add(const HashedKey& key, Half half);
  // What waits under the key, if anything.
  std::optional<Half> Find(const HashedKey& key) const;
  // Takes out `half` if it is what waits under the key.
  bool Remove(const HashedKey& key, Half half);
  size_t size() const { return waiting_.size(); }

 private:
  ShardedMap<HashedKey, Half> waiting_;
};

}  // namespace ferry
