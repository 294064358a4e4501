// SPDX-License-Identifier: Apache-2.0
// The functions of numerics/block.h as loops for the best instructions that the CPU has, also from
// and to bf16. They give the same bits. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/numerics/block.h"

namespace ferry::compute {

// `in` has elements of type `from`: f32 or bf16.
void QuantizeBlocksFast(const BlockFormat& format, ScaleRounding rounding, DType from,
                        const std::byte* in, uint64_t rows, uint64_t columns, std::byte* elements,
                        std::byte* scales, float global);

// `out` gets elements of type `to`: f32 or bf16.
void DequantizeBlocksFast(const BlockFormat& format, const std::byte* elements,
                          const std::byte* scales, uint64_t scale_columns, uint64_t rows,
                          uint64_t columns, DType to, std::byte* out, float global);

}  // namespace ferry::compute
