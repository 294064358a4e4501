// SPDX-License-Identifier: Apache-2.0
// A hash map in parts that grow one by one: a map of a million entries would take a tenth of a
// second to grow at once. Home: its owner's.
#pragma once

#include <array>
#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"

namespace ferry {

template <typename Key, typename Value>
class ShardedMap {
 public:
  using Shard = absl::flat_hash_map<Key, Value>;

  // The part that has the key, or that a new key goes into.
  Shard& Of(const Key& key) { return shards_[Index(key)]; }
  const Shard& Of(const Key& key) const { return shards_[Index(key)]; }
  size_t size() const {
    size_t size = 0;
    for (const Shard& shard : shards_) size += shard.size();
    return size;
  }

 private:
  static constexpr size_t kShards = 64;
  // By bits of the hash that the part itself does not use.
  static size_t Index(const Key& key) { return absl::HashOf(key) >> 58; }

  std::array<Shard, kShards> shards_;
};

}  // namespace ferry
