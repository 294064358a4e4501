// SPDX-License-Identifier: Apache-2.0
// Programs of the shapes and types at which loops and kernels go other ways: tensors of part of a
// vector, of several tiles, of several chunks, of nothing; rows, columns, and what lies across. The
// CPU and GPUs are held against the reference with them. Pure functions.
#pragma once

#include <vector>

#include "compute/program/program.h"

namespace ferry::compute::testing {

// Each elementwise op of each of its types, over more than a tile and one element.
std::vector<Program> ElementwisePrograms();
// Chains of ops on f32 and bf16 with conversions between the two, of which only the last value is
// stored: each op still rounds to its type.
std::vector<Program> ChainPrograms();
// Rows of a part of a tile, of more than one, of more than are kept; what is done once a row; rows
// longer than a chunk of a reduction, and than one of chunks.
std::vector<Program> RowPrograms();
// Reductions over other dimensions than the last, of all types.
std::vector<Program> ColumnPrograms();
// The same of tensors that lie as what is reduced does, are spread, or are counted.
std::vector<Program> MadeColumnPrograms();
// The first of the largest, over other dimensions than the last.
std::vector<Program> ArgmaxPrograms();
// Reductions of what is seen through a transpose, a slice, a reversal; results that are used once a
// row, also into their own memory.
std::vector<Program> ColumnUsePrograms();
// Transposes of all sizes of elements.
std::vector<Program> TransposePrograms();
// Ops on what is read across memory, beside what is not; a step and a reversal; positions; into
// memory that is read, and into one that is not dense.
std::vector<Program> AcrossPrograms();
// In place, reversed and shifted in place; kEmptied; what is stored before and after a broadcast.
std::vector<Program> BufferPrograms();

// What nothing is written to is 0, or all ones if it is to be noticed.
inline constexpr char kEmptied[] =
    "program 1\nbuffer @y write 16\nbuffer @z write 3\n%a = constant splat=2 : f32[2]\n"
    "%e = empty : f32[2]\n%c = concatenate %e, %a dimension=0\n%d = add %c, %c\n"
    "store @y, %d\n%b = constant splat=false : bool[1]\n%f = empty : bool[2]\n"
    "%g = concatenate %f, %b dimension=0\nstore @z, %g\n";

}  // namespace ferry::compute::testing
