// SPDX-License-Identifier: Apache-2.0
// Block-scaled formats: narrow elements, where each block along the last dimension shares a scale.
// A tensor is seen as `rows` (all dimensions but the last together) of `columns`. Elements are
// dense over the whole tensor. Scales are rows of ScaleColumns() bytes ("plain"; scale_layout.h has
// the other order). docs/numerics.md has the recipes, and what becomes of zeros, infinities and
// NaN. The bits are the same on every CPU, under convert.h's condition. Any thread. No state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "compute/dtype.h"
#include "compute/numerics/convert.h"

namespace ferry::compute {

// A block-scaled format. The last block of a row may have fewer elements.
struct BlockFormat {
  DType element = DType::kF8E4M3FN;  // f8e4m3fn, f8e5m2 or f4e2m1fn
  DType scale = DType::kF8E8M0FNU;   // or f8e4m3fn
  uint64_t block = 32;               // elements for each scale, not 0
};
inline constexpr BlockFormat kMxFp8E4M3{DType::kF8E4M3FN, DType::kF8E8M0FNU, 32};
inline constexpr BlockFormat kMxFp8E5M2{DType::kF8E5M2, DType::kF8E8M0FNU, 32};
inline constexpr BlockFormat kMxFp4{DType::kF4E2M1FN, DType::kF8E8M0FNU, 32};
inline constexpr BlockFormat kNvFp4{DType::kF4E2M1FN, DType::kF8E4M3FN, 16};

constexpr uint64_t ScaleColumns(uint64_t columns, uint64_t block) {
  return columns / block + (columns % block != 0 ? 1 : 0);
}

// The next four say slowly what docs/numerics.md defines. Tests hold the executors against them
// (compute/host/block_loops.h); nothing else calls them.

// The elements for each scale, where a row has `columns` elements and `scale_columns` scales:
// `explicit_block` if given, for which there may be more scales than needed; else columns /
// scale_columns, which must be whole.
absl::StatusOr<uint64_t> BlockSize(uint64_t columns, uint64_t scale_columns,
                                   std::optional<uint64_t> explicit_block);

// The global scale to use with kNvFp4: amax / 2688 (the largest element times the largest scale) in
// f32, but at least 2^-126. `amax` is the largest magnitude of the tensor; if it is 0 or not finite
// the scale is 1.
float NvFp4GlobalScale(float amax);

// Quantises value / `global`. `rounding` is for f8e8m0fnu block scales; f8e4m3fn scales round to
// nearest even. `scales` has rows * ScaleColumns(columns, block) bytes, `elements` has
// BytesOf(element, rows * columns).
void QuantizeBlocks(const BlockFormat& format, ScaleRounding rounding, const float* in,
                    uint64_t rows, uint64_t columns, std::byte* elements, std::byte* scales,
                    float global = 1);

// Computes (element * scale) * global, two products in f32. Each row has `scale_columns` scales, of
// which only the first ScaleColumns(columns, block) are used.
void DequantizeBlocks(const BlockFormat& format, const std::byte* elements, const std::byte* scales,
                      uint64_t scale_columns, uint64_t rows, uint64_t columns, float* out,
                      float global = 1);

}  // namespace ferry::compute
