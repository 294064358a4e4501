// SPDX-License-Identifier: Apache-2.0
// The order in which tensor cores take block scales ("swizzled"): tiles of 128 rows and 4 columns,
// 512 bytes each, where rows that are 32 apart are neighbours. A scale is a byte; plain scales are
// row-major. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::compute {

// Bytes of the padded tensor: rows rounded up to a multiple of 128, columns to a multiple of 4.
uint64_t SwizzledScaleBytes(uint64_t rows, uint64_t columns);

// The offset of the scale at (row, column) in a tensor of `columns` columns.
uint64_t SwizzledScaleOffset(uint64_t row, uint64_t column, uint64_t columns);

// From plain to swizzled; padding becomes 0.
void SwizzleScales(const std::byte* plain, uint64_t rows, uint64_t columns, std::byte* swizzled);

// From swizzled to plain; padding is ignored.
void UnswizzleScales(const std::byte* swizzled, uint64_t rows, uint64_t columns, std::byte* plain);

}  // namespace ferry::compute
