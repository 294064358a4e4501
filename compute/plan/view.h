// SPDX-License-Identifier: Apache-2.0
// Where the elements of a tensor are in memory, seen through moves. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compute/program/program.h"

namespace ferry::compute {

// The element at (i, j, ...) is `offset` + i * strides[0] + j * strides[1] + ... elements from a
// base.
struct View {
  int64_t offset = 0;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
};

// A chain of views. The first indexes memory; each later one yields element numbers of the view
// before it. Never empty.
using Views = std::vector<View>;

// A dense, row-major view.
View LinearView(const std::vector<int64_t>& dims);
uint64_t ElementsOf(const View& view);
bool IsDense(const View& view);
// Changes the view to other dimensions of the same memory; false if no strides can say that.
bool Reshape(View& view, const std::vector<int64_t>& dims);
// Applies `node`, a move or reshape of an operand of type `from`, to the operand's views.
void Move(const Node& node, const TensorType& from, const TensorType& to, Views& views);
// Reorders the dimensions of `type`.
void Permute(absl::Span<const size_t> order, const TensorType& type, Views& views);

}  // namespace ferry::compute
