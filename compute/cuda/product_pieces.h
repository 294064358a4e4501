// SPDX-License-Identifier: Apache-2.0
// How the terms of a product are divided among calls of a library: its running sums lose more the
// longer they are (docs/numerics.md, "Products"). Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compute/cuda/gpu_plan.h"

namespace ferry::compute {

// The most terms that a library adds up in one running sum, by the type of the factors. Measured on
// an H200 with equal terms, which is the worst: 1,024 of bf16 and 512 of f16 stay below 2^-17 of
// the terms' magnitudes (2,048 have 0.98 and 2.9 of that), since tensor cores cut off what does not
// fit a sum of some bits more than an f32. f32 and f64 are added term by term and rounded: 256 have
// 0.48.
inline constexpr int64_t kTermsOfBf16 = 1024;
inline constexpr int64_t kTermsOfF16 = 512;
inline constexpr int64_t kTermsOfWide = 256;
// The same where factors and result have 16 bits: 12 times 2^-17, which is less than 2^-13.
inline constexpr int64_t kTermsOfRounded = 8192;
// The same of blocks with scales and a result of more than 16 bits. Not measured: a library is
// tried with sums of this length before it is used (compute/cuda/run/block_scale_check.h).
inline constexpr int64_t kTermsOfBlocks = 1024;
// Pieces that go into one sum, one after the other; so many if there are several batches, which
// have a sum each, and of blocks with scales, whose pieces are a call each.
inline constexpr int64_t kPiecesOfSum = 64;
inline constexpr int64_t kPiecesOfBatch = 256;

struct ProductPieces {
  int64_t length = 0;  // terms of a piece
  int64_t whole = 1;   // pieces of that length
  int64_t rest = 0;    // terms of one more piece; 0: there is none
  int64_t sums = 1;  // sums beside each other: piece i goes to sum i % sums, the rest to the first

  bool one() const { return whole == 1 && rest == 0; }
};

// How a product whose result is to be of type `result` is divided: one piece if it is short enough.
// Nothing if it would be too many calls.
std::optional<ProductPieces> PiecesOf(const GpuProduct& product, DType result);
// The calls, in order, that make the product in `pieces`. Its result is where the sums are to be,
// one [batches, m, n] behind the other, each dense and of the type of the sums. Its scales, if it
// has any, are where those of the pieces are, each swizzled by itself, one behind the other.
std::vector<GpuProduct> CallsOf(const GpuProduct& product, const ProductPieces& pieces);

}  // namespace ferry::compute
