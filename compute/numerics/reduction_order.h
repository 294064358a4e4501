// SPDX-License-Identifier: Apache-2.0
// In which order a reduction combines the elements of a row, wherever it runs (docs/numerics.md,
// "Reductions"). Constants; kernels/reduce.cuh of compute/cuda has them for GPUs.
#pragma once

#include <cstdint>

namespace ferry::compute {

// A row is reduced in chunks of so many elements, and what comes of the chunks is reduced as a row.
inline constexpr uint64_t kReductionChunk = 4096;
// Within a chunk, elements whose places differ by a multiple of this are combined first.
inline constexpr uint64_t kReductionLanes = 128;

}  // namespace ferry::compute
