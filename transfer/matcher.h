// SPDX-License-Identifier: Apache-2.0
// TransferMatcher pairs halves by (domain, source, destination, key), never by position. Pure: no
// time, no thread. Home: control (owned by TransferEngine).
//
// Invariant: a key has at most one unmatched half; so an entry holds one half, and the half of the
// other side takes it out. A key whose pair is out may be used again.
#pragma once

#include <cstdint>
#include <optional>

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

class TransferMatcher {
 public:
  enum class Outcome { kWaiting, kMatched, kKeyInUse };
  struct Result {
    Outcome outcome = Outcome::kWaiting;
    Half other;  // kMatched: the half that waited; kKeyInUse: the one that holds the key
  };

  // Adds a half, or takes out the one it matches. On kKeyInUse nothing changes.
  Result Add(const MatchKey& key, Half half);
  // What waits under the key, if anything.
  std::optional<Half> Find(const MatchKey& key) const;
  // Takes out `half` if it is what waits under the key.
  bool Remove(const MatchKey& key, Half half);
  size_t size() const { return waiting_.size(); }

 private:
  ShardedMap<MatchKey, Half> waiting_;
};

}  // namespace ferry
