// SPDX-License-Identifier: Apache-2.0
// Loops over one tile of elements, for the best instructions that this CPU has. Elements are as in
// memory, but each f4e2m1fn has a byte of its own. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/program/op.h"

namespace ferry::compute {

// Operands that the op does not have are ignored. `out` is one of the operands, or overlaps none.
using TileKernel = void (*)(const std::byte* a, const std::byte* b, const std::byte* c,
                            std::byte* out, size_t count);

// The kernel of an elementwise op on one type; nullptr: there is none.
TileKernel KernelOf(Op op, DType type);
// The same, but only for the functions that numerics.md has tolerances for.
TileKernel FunctionKernelOf(Op op, DType type);
TileKernel CompareKernelOf(Direction direction, bool total_order, DType type);
// The kernel that picks b or c by a; for elements of `bytes` bytes.
TileKernel SelectKernelOf(size_t bytes);
// The index of the first largest of `count` elements, at least one; a NaN is larger than all.
using ArgmaxKernel = size_t (*)(const std::byte* in, size_t count);
ArgmaxKernel ArgmaxKernelOf(DType type);
// For results of which each has another element of each turn. If in[i] is larger than best[i], or a
// NaN and best[i] is none: it becomes best[i], and `at` index[i].
using LargerKernel = void (*)(const std::byte* in, uint64_t at, std::byte* best, uint64_t* index,
                              size_t count);
LargerKernel LargerKernelOf(DType type);
// The kernel between f32, f16 and bf16; nullptr: numerics/convert.h converts.
TileKernel ConvertKernelOf(DType from, DType to);

}  // namespace ferry::compute
