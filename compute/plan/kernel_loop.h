// SPDX-License-Identifier: Apache-2.0
// What a kernel of a plan goes through, as its program says by its shapes, and what executors need
// to know of its ops for that. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/plan/view.h"
#include "compute/program/program.h"

namespace ferry::compute {

struct KernelLoop {
  bool has_rows = false;  // does anything look at them?
  uint64_t rows = 1;
  uint64_t row = 0;  // elements in each
  uint64_t elements = 0;
};
// Of reductions and blocks the operand, else whatever it makes.
KernelLoop LoopOf(const Program& kernel);

// Does it only say where elements of its operand are?
bool IsMove(Op op);
// Of a reduction of `type`: kept dimensions, then reduced ones.
std::vector<size_t> ReductionOrder(const Node& node, const TensorType& type);
// How `type` is in the buffer that `node` reads or writes, from the byte at its offset on.
View BufferView(const Node& node, const TensorType& type);
// All dimensions but the last together.
uint64_t RowsOf(const TensorType& type);
// The elements a scale of an op of blocks.
uint64_t BlockOf(const Node& node, const TensorType& data, const TensorType& scales);
// What a reduction of nothing is, as an element of `type`.
uint64_t IdentityOf(Reduction reduction, DType type);
// In what a reduction, or `cumulative_sum`, of `type` is done.
DType AccumulatorOf(const Node& node, DType type);

}  // namespace ferry::compute
