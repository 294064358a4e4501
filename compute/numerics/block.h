// SPDX-License-Identifier: Apache-2.0
// Block-scaled formats: narrow elements, of which each block along the last dimension shares a
// scale. A tensor is `rows` (all dimensions but the last together) of `columns`; elements are dense
// over the whole tensor, scales are rows of ScaleColumns bytes ("plain"; scale_layout.h has the
// other order). docs/numerics.md has the recipes and what becomes of zeros, infinities and NaN. The
// same bits on every CPU, under convert.h's condition. Any thread. No state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "compute/dtype.h"
#include "compute/numerics/convert.h"

namespace ferry::compute {

// The last block of a row may have fewer elements.
struct BlockFormat {
  DType element = DType::kF8E4M3FN;  // f8e4m3fn, f8e5m2 or f4e2m1fn
  DType scale = DType::kF8E8M0FNU;   // or f8e4m3fn
  uint64_t block = 32;               // elements a scale, not 0
};
inline constexpr BlockFormat kMxFp8E4M3{DType::kF8E4M3FN, DType::kF8E8M0FNU, 32};
inline constexpr BlockFormat kMxFp8E5M2{DType::kF8E5M2, DType::kF8E8M0FNU, 32};
inline constexpr BlockFormat kMxFp4{DType::kF4E2M1FN, DType::kF8E8M0FNU, 32};
inline constexpr BlockFormat kNvFp4{DType::kF4E2M1FN, DType::kF8E4M3FN, 16};

constexpr uint64_t ScaleColumns(uint64_t columns, uint64_t block) {
  return columns / block + (columns % block != 0 ? 1 : 0);
}

// The elements a scale of rows of `columns` elements and `scale_columns` scales: `explicit_block`
// if given, of which the scales may be more than are needed; else columns / scale_columns, which
// must be whole.
absl::StatusOr<uint64_t> BlockSize(uint64_t columns, uint64_t scale_columns,
                                   std::optional<uint64_t> explicit_block);

// The global scale that kNvFp4 is meant to be used with: amax / 2688 (the largest element times the
// largest scale) in f32, but at least 2^-126; 1 where amax, the largest magnitude of the tensor, is
// 0 or not finite.
float NvFp4GlobalScale(float amax);

// Block scales by `rounding` (for f8e8m0fnu; f8e4m3fn rounds to nearest even); what is stored
// stands for value / `global`. `scales` has rows * ScaleColumns(columns, block) bytes, `elements`
// BytesOf(element, rows * columns).
void QuantizeBlocks(const BlockFormat& format, ScaleRounding rounding, const float* in,
                    uint64_t rows, uint64_t columns, std::byte* elements, std::byte* scales,
                    float global = 1);

// (element * scale) * global, two f32 products. Each row has `scale_columns` scales, of which the
// first ScaleColumns(columns, block) count.
void DequantizeBlocks(const BlockFormat& format, const std::byte* elements, const std::byte* scales,
                      uint64_t scale_columns, uint64_t rows, uint64_t columns, float* out,
                      float global = 1);

}  // namespace ferry::compute
