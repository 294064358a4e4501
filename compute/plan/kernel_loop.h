// SPDX-License-Identifier: Apache-2.0
// The loop of a plan's kernel, as the shapes in its program determine it, and what executors need
// to know of its ops for that. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/plan/view.h"
#include "compute/program/program.h"

namespace ferry::compute {

struct KernelLoop {
  bool has_rows = false;  // some op depends on where rows begin and end
  uint64_t rows = 1;
  uint64_t row = 0;  // elements of one row
  uint64_t elements = 0;
};
// The loop over the operand of a reduction or block op, if there is one; else over what the kernel
// makes.
KernelLoop LoopOf(const Program& kernel);

// Whether the op only says where elements of its operand are.
bool IsMove(Op op);
// The dimensions of a reduction's operand, of `type`: first those that are kept, then those that
// are reduced.
std::vector<size_t> ReductionOrder(const Node& node, const TensorType& type);
// How a tensor of `type` lies in the buffer that `node` reads or writes, from the node's offset on.
View BufferView(const Node& node, const TensorType& type);
// The product of all dimensions but the last.
uint64_t RowsOf(const TensorType& type);
// Elements for each scale of a block op.
uint64_t BlockOf(const Node& node, const TensorType& data, const TensorType& scales);
// The result of a reduction of no elements, as an element of `type`.
uint64_t IdentityOf(Reduction reduction, DType type);
// The type in which a reduction or `cumulative_sum` of `type` is computed.
DType AccumulatorOf(const Node& node, DType type);

}  // namespace ferry::compute
