// SPDX-License-Identifier: Apache-2.0
// The sizes that delta_encode and delta_apply have to do with: docs/numerics.md says what both do.
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "compute/program/program.h"

namespace ferry::compute {

// Of one block, powers of two.
inline constexpr int64_t kLeastDeltaBlock = 64;
inline constexpr int64_t kMostDeltaBlock = 4096;
inline constexpr uint64_t kBlocksOfWord = 32;  // one bit of the bitmap for each block

struct DeltaSizes {
  uint64_t bytes = 0;     // of what is compared, or written over
  uint64_t block = 0;     // bytes; the last block may have fewer
  uint64_t capacity = 0;  // blocks that the values have room for
  uint64_t blocks = 0;
  uint64_t words = 0;  // of the bitmap

  uint64_t BytesOfWord() const { return block * kBlocksOfWord; }
};

// `values` is the type of an op's values, u8[capacity, block], which its rule has accepted.
inline DeltaSizes DeltaSizesOf(uint64_t bytes, const TensorType& values) {
  DeltaSizes sizes;
  sizes.bytes = bytes;
  sizes.capacity = static_cast<uint64_t>(values.dims[0]);
  sizes.block = static_cast<uint64_t>(values.dims[1]);
  sizes.blocks = bytes / sizes.block + (bytes % sizes.block != 0 ? 1 : 0);
  sizes.words = (sizes.blocks + kBlocksOfWord - 1) / kBlocksOfWord;
  return sizes;
}

// Of a delta_encode or a delta_apply of `program`.
DeltaSizes DeltaSizesOf(const Program& program, const Node& node);

}  // namespace ferry::compute
