// SPDX-License-Identifier: Apache-2.0
// Loops over one tile of elements, for the best instructions that the CPU at hand has. Elements are
// as in memory, but each of f4e2m1fn has a byte of its own. Pure functions; any thread.
#pragma once

#include <cstddef>

#include "compute/program/op.h"

namespace ferry::compute {

// Operands that an op does not have are not looked at. `out` may be an operand, or apart from all.
using TileKernel = void (*)(const std::byte* a, const std::byte* b, const std::byte* c,
                            std::byte* out, size_t count);

// Of elementwise ops of one type; nullptr: there is none.
TileKernel KernelOf(Op op, DType type);
// Of those only the functions that numerics.md has tolerances for.
TileKernel FunctionKernelOf(Op op, DType type);
TileKernel CompareKernelOf(Direction direction, bool total_order, DType type);
// Picks b or c by a; by bytes of an element.
TileKernel SelectKernelOf(size_t bytes);
// The first of the largest of at least one element; a NaN is larger than all.
using ArgmaxKernel = size_t (*)(const std::byte* in, size_t count);
ArgmaxKernel ArgmaxKernelOf(DType type);
// Between f32, f16 and bf16; nullptr: numerics/convert.h does it.
TileKernel ConvertKernelOf(DType from, DType to);

}  // namespace ferry::compute
