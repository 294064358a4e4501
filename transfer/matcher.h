// SPDX-License-Identifier: Apache-2.0
// TransferMatcher pairs halves by (domain, source, destination, key), never by position. Pure: no
// time, no thread. Home: control (owned by TransferEngine).
//
// Invariant: a key has at most one unmatched half. So an entry holds one half, and a half of the
// other side takes it out. A key whose pair was taken out may be used again. The key of a waiting
// half belongs to the half's owner, who must not move it until that half is out.
//
// A convoy (transfer/convoy.h) is one half under its packed key, and is also found by each of its
// keys. Invariant: no key of a waiting convoy is the key of another waiting half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/hash/hash.h"
#include "base/home.h"
#include "transfer/sharded_map.h"
#include "transfer/types.h"

namespace ferry {

// One half, wherever it was posted. `peer` is the daemon that `transfer` is an id of: the daemon's
// own PeerId for halves that were posted here.
struct Half {
  Side side = Side::kSend;
  PeerId peer;
  TransferId transfer;
  bool operator==(const Half&) const = default;
};

// A key and its hash, so that a caller that asks several times hashes once. Refers to the key.
// Home: its owner's.
class HashedKey {
 public:
  HashedKey(const MatchKey& key) : key_(&key), hash_(absl::HashOf(key)) {}  // also implicitly
  const MatchKey& key() const { return *key_; }
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
  // kApart: a convoy is in the way, and nothing has changed. If the added half has one key, the
  // convoy `other`, of the other side, has that key among others: the caller takes `other` apart
  // and adds the half again. If the added half is a convoy, a half or convoy waits under one of its
  // keys: the caller then adds the convoy's transfers one by one.
  enum class Outcome { kWaiting, kMatched, kKeyInUse, kApart };
  struct Result {
    Outcome outcome = Outcome::kWaiting;
    // kMatched: the half that waited; kKeyInUse: the half that holds the key; kApart: see there.
    Half other;
  };

  // Adds a half, or takes out the one it matches. On kKeyInUse nothing changes.
  Result Add(const HashedKey& key, Half half);
  // What waits under the key, if anything; it may be a convoy that has the key among others.
  std::optional<Half> Find(const HashedKey& key) const;
  // Takes out `half` if it is what waits under the key.
  bool Remove(const HashedKey& key, Half half);
  size_t size() const { return waiting_.size(); }

 private:
  // A key of a waiting convoy.
  struct Member {
    const MatchKey* convoy = nullptr;
    uint32_t at = 0;  // PackedKeys::at() of the key
    Half half;        // the convoy
  };
  Result AddConvoy(const HashedKey& key, Half half);
  // Removes the convoy's keys that are before `end` of its packed key.
  void RemoveMembers(const MatchKey& convoy, size_t end);
  const Member* FindMember(const MatchKey& key) const;

  ShardedMap<HashedKey, Half> waiting_;
  // By a hash of the key. Two keys with the same hash count as one key, but only in AddConvoy(),
  // which is then slower and still right.
  ShardedMap<uint64_t, Member> members_;
  size_t convoys_ = 0;
  size_t singles_ = 0;  // halves that wait under a key of their own
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
