// SPDX-License-Identifier: Apache-2.0
// The order in which tensor cores want block scales: tiles of 128 rows and 4 columns, 512 bytes
// each, in which rows 32 apart are neighbours. Scales are bytes; plain ones are row-major. Pure
// functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::compute {

// Of the padded tensor: rows up to a multiple of 128, columns up to one of 4.
uint64_t SwizzledScaleBytes(uint64_t rows, uint64_t columns);

// Where the scale at (row, column) of a tensor of `columns` columns is.
uint64_t SwizzledScaleOffset(uint64_t row, uint64_t column, uint64_t columns);

// Plain to swizzled; padding becomes 0.
void SwizzleScales(const std::byte* plain, uint64_t rows, uint64_t columns, std::byte* swizzled);

// And back; padding is not looked at.
void UnswizzleScales(const std::byte* swizzled, uint64_t rows, uint64_t columns, std::byte* plain);

}  // namespace ferry::compute
