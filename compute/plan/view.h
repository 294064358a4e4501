// SPDX-License-Identifier: Apache-2.0
// Tensors in memory as moves see them: which element is where. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compute/program/program.h"

namespace ferry::compute {

// The element at (i, j, ...) is `offset` + i * strides[0] + j * strides[1] + ... elements after a
// base.
struct View {
  int64_t offset = 0;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
};

// What moves of moves see: a place that the last one says counts the elements of the one before it,
// and that of the first one is in memory. Never empty.
using Views = std::vector<View>;

// Dense and row-major.
View LinearView(const std::vector<int64_t>& dims);
uint64_t ElementsOf(const View& view);
bool IsDense(const View& view);
// As a view of the same memory of other dimensions; false: no strides say it.
bool Reshape(View& view, const std::vector<int64_t>& dims);
// What `node`, a move or a reshape, makes of its operand `from`.
void Move(const Node& node, const TensorType& from, const TensorType& to, Views& views);
// Dimensions of `type` in another order.
void Permute(absl::Span<const size_t> order, const TensorType& type, Views& views);

}  // namespace ferry::compute
