// SPDX-License-Identifier: Apache-2.0
// How the terms of a product are divided among calls of a library: its running sums lose more the
// longer they are (docs/numerics.md, "Products"). Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compute/cuda/gpu_plan.h"

namespace ferry::compute {

// The most terms that a library adds up in one running sum. Tensor cores add 16 products of 16-bit
// factors at a time, and cut off what is below the sum's last bits; f32 and f64 are added one by
// one, and a run of equal terms errs in one direction.
inline constexpr int64_t kTermsOfNarrow = 8192;
inline constexpr int64_t kTermsOfWide = 512;
// Pieces that go into one sum, one after the other.
inline constexpr int64_t kPiecesOfSum = 256;

struct ProductPieces {
  int64_t length = 0;  // terms of a piece
  int64_t whole = 1;   // pieces of that length
  int64_t rest = 0;    // terms of one more piece; 0: there is none
  int64_t sums = 1;    // sums beside each other: piece i goes to sum i % sums

  bool one() const { return whole == 1 && rest == 0; }
};

// How a product is divided that nothing of has been: one piece if it is short enough. Nothing if it
// would be too many calls.
std::optional<ProductPieces> PiecesOf(const GpuProduct& product);
// The calls, in order, that make the product in `pieces`. Its result is where the sums are to be,
// one [batches, m, n] behind the other, each dense and of the type of the sums.
std::vector<GpuProduct> CallsOf(const GpuProduct& product, const ProductPieces& pieces);

}  // namespace ferry::compute
