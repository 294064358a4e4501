// SPDX-License-Identifier: Apache-2.0
// How threads divide reductions whose results lie closer to each other in memory than the elements
// of one result do, as those of f32[4096,1024] over dimension 0. A block of threads has `width`
// results that follow each other, and kColumnThreads / width threads for each: neighbouring threads
// have neighbouring results, so that what a warp reads at a time are whole lines. A thread reads
// down the reduced dimensions: of the 128 lanes of a result (kernels/reduce.cuh) it has every
// kColumnThreads / width-th, in registers. So each lane is added up as a warp's is that has a row
// of its own, and so are lanes to one: the bits are the same.
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "compute/cuda/kernel_shape.h"
#include "compute/program/program.h"

namespace ferry::compute {

inline constexpr int kColumnThreads = 256;  // of a block

// The results of a block: 8, 16 or 32, of which few are left over; less than 32 too if blocks would
// be so few that they do not keep a GPU busy, as long as what is read of a result's neighbours at a
// time is 32 bytes or more. 0: a warp has each result, and reads its elements strided or in a row.
// That is so where fewer than 8 results are neighbours, where what is read lies the other way for
// the larger part, where something is made for each element besides reductions, or where lanes
// would not fit into registers. `shape` has its values, its sinks and its template.
int ColumnWidthOf(const Program& program, const KernelShape& shape);

// Of a launch in which a block has `width` results of one of `parts` chunks (1: of all of them).
uint64_t ColumnBlocksOf(const KernelShape& shape, uint64_t parts);
// Threads that have a lane of a result that exists.
uint64_t ColumnBusyOf(const KernelShape& shape, uint64_t parts);

}  // namespace ferry::compute
