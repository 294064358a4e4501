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

// The results of a block: 32, 16 or 8. There are fewer than 32 where results are so few that
// threads would be left over, and where blocks of 32 would be too few to keep a GPU busy, as long
// as 32 bytes of neighbours are still read at a time. There are at most 16, or 8, where lanes of 32
// would take too many registers, or what is done with each element would be too much code. 0: a
// warp has each result, and its lanes read the elements of that, strided or in a row. That is so
// where fewer than 8 results are neighbours, where most of what is read lies the other way, where
// something else than reductions is made of each element, or where lanes would not fit into
// registers. `shape` has its values, its sinks and its template.
int ColumnWidthOf(const Program& program, const KernelShape& shape);

// Elements of its results that a thread of such a kernel reads before it computes: `load_bits` of
// one element of all tensors, on which there are `ops`. A multiple of its lanes of a result.
int ColumnUnrollOf(const KernelShape& shape, int64_t load_bits, int ops);
// Blocks of a launch in which each has so many results, of these one of `parts` chunks.
uint64_t ColumnBlocksOf(const KernelShape& shape, uint64_t parts);
// Threads that have a lane of a result that exists.
uint64_t ColumnBusyOf(const KernelShape& shape, uint64_t parts);

}  // namespace ferry::compute
