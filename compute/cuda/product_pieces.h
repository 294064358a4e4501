// SPDX-License-Identifier: Apache-2.0
// How the terms of a product are divided among calls of a library: its running sums lose more the
// longer they are (docs/numerics.md, "Products"). Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compute/cuda/gpu_plan.h"

namespace ferry::compute {

// The most terms that a library adds up in one running sum: 256 additions. Each loses 2^-24 of the
// sum so far, at most, and these are half of the magnitudes on average: 2^-17. Tensor cores add 16
// products of 16-bit factors at a time, to a sum of some bits more, of which they cut off the rest;
// f32 is added term by term, and so is f64, which loses and may lose 2^-29 of all that.
inline constexpr int64_t kTermsOfNarrow = 4096;
inline constexpr int64_t kTermsOfWide = 256;
// Pieces that go into one sum, one after the other; so many if there are several batches, which
// have a sum each.
inline constexpr int64_t kPiecesOfSum = 64;
inline constexpr int64_t kPiecesOfBatch = 256;

struct ProductPieces {
  int64_t length = 0;  // terms of a piece
  int64_t whole = 1;   // pieces of that length
  int64_t rest = 0;    // terms of one more piece; 0: there is none
  int64_t sums = 1;    // sums beside each other: piece i goes to sum i % sums

  bool one() const { return whole == 1 && rest == 0; }
};

// How a product whose result is to be of type `result` is divided: one piece if it is short enough.
// Nothing if it would be too many calls.
std::optional<ProductPieces> PiecesOf(const GpuProduct& product, DType result);
// The calls, in order, that make the product in `pieces`. Its result is where the sums are to be,
// one [batches, m, n] behind the other, each dense and of the type of the sums.
std::vector<GpuProduct> CallsOf(const GpuProduct& product, const ProductPieces& pieces);

}  // namespace ferry::compute
