// SPDX-License-Identifier: Apache-2.0
// How threads divide a tensor that is read across: its elements of one dimension follow each other
// in memory, and those of another one in what is written. A thread takes a square of both, of V by
// V elements: it reads V vectors of V along the first, and writes V vectors of V along the second.
// Example: a transposed bf16[64,32] is written as rows of 32 elements, which are columns of what is
// read. A thread's square of 8 x 8 is 8 words of 16 bytes read, 64 elements turned in registers,
// and 8 words of 16 bytes written. Plain data and pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "compute/plan/view.h"

namespace ferry::compute {

// Elements in the order in which they are written are ((outer * along + a) * between + m) * last +
// b: with `a` one moves on by one element in what is read, with `b` in what is written.
struct TransposeTile {
  int64_t outer = 1;    // the product of the dimensions before `along`
  int64_t along = 1;    // the dimension whose elements follow each other in what is read
  int64_t between = 1;  // the product of those between the two
  int64_t last = 1;     // the last dimension, whose elements follow each other in what is written
  int64_t stride = 1;   // from one element of the last dimension to the next in what is read

  bool operator==(const TransposeTile& other) const = default;
};

// A block of threads takes so many squares along each of the two dimensions.
inline constexpr int kTileSquares = 16;

// None, if the view is not read across, or its two dimensions are no multiples of `vector`.
std::optional<TransposeTile> TransposeTileOf(const View& view, int vector);

// Blocks of threads that take all of the tensor.
uint64_t BlocksOf(const TransposeTile& tile, int vector);

}  // namespace ferry::compute
