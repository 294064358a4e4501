// SPDX-License-Identifier: Apache-2.0
// Random bits that depend on key, counter and position alone: Philox4x32-10 of Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3" (SC11). Pure functions, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ferry::compute {

struct PhiloxKey {
  std::array<uint32_t, 2> words = {};  // the low word first
};
struct PhiloxBlock {
  std::array<uint32_t, 4> words = {};  // the low word first
};

// The block of random bits at `counter`.
PhiloxBlock Philox4x32(PhiloxKey key, PhiloxBlock counter);

// The bytes [first, first + bytes) of an endless stream: the blocks at counter, counter + 1 and so
// on (modulo 2^128), one after the other, words little-endian. Element i of a tensor of random
// integers of w bytes is the w bytes from i * w on, whoever computes it with whatever tiles.
void RandomBytes(PhiloxKey key, PhiloxBlock counter, uint64_t first, std::byte* out,
                 uint64_t bytes);

}  // namespace ferry::compute
