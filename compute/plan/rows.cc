// SPDX-License-Identifier: Apache-2.0
#include "compute/plan/rows.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "compute/plan/plan.h"

namespace ferry::compute {
namespace {

using A = Attribute;

// Dimensions of `type` from the first to the last, those of 1 left out, are some that `is_kept`,
// then only others. `length`: of the others together.
template <typename IsKept>
bool AreRows(const TensorType& type, IsKept is_kept, uint64_t& length) {
  length = 1;
  bool others = false;
  for (size_t i = 0; i < type.dims.size(); ++i) {
    if (type.dims[i] == 1) continue;
    if (!is_kept(i)) {
      others = true;
      length *= static_cast<uint64_t>(type.dims[i]);
    } else if (others) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool ReducesRows(const Node& node, const TensorType& type) {
  std::vector<int64_t> dimensions = {node.attributes.Int(A::kDimension)};
  if (node.op == Op::kReduce) {
    const auto list = node.attributes.Ints(A::kDimensions);
    dimensions.assign(list.begin(), list.end());
  }
  uint64_t length = 0;
  const auto is_kept = [&](size_t i) {
    return std::find(dimensions.begin(), dimensions.end(), static_cast<int64_t>(i)) ==
           dimensions.end();
  };
  return AreRows(type, is_kept, length);
}

size_t InnerOf(const View& view, absl::Span<const size_t> order, size_t kept) {
  int64_t least = std::numeric_limits<int64_t>::max();  // stride of what is reduced
  for (const size_t d : order.subspan(kept)) {
    if (view.dims[d] != 1 && view.strides[d] != 0) {
      least = std::min(least, std::abs(view.strides[d]));
    }
  }
  size_t inner = 0;
  for (; inner < kept; ++inner) {
    const size_t d = order[kept - inner - 1];
    if (view.dims[d] != 1 && std::abs(view.strides[d]) >= least) break;
  }
  return inner;
}

uint64_t NeighboursOf(const View& view, absl::Span<const size_t> order, size_t kept) {
  const size_t inner = InnerOf(view, order, kept);
  uint64_t neighbours = 1;
  for (const size_t d : order.subspan(kept - inner, inner)) {
    neighbours *= static_cast<uint64_t>(view.dims[d]);
  }
  return neighbours;
}

bool SpreadsRows(const Node& node, const TensorType& from, const TensorType& to) {
  const auto dimensions = node.attributes.Ints(A::kDimensions);
  std::vector<bool> kept(to.dims.size());
  int64_t last = -1;
  for (size_t i = 0; i < from.dims.size(); ++i) {
    if (from.dims[i] == 1) continue;  // it may grow: then it is no dimension of rows
    if (dimensions[i] < last) return false;
    last = dimensions[i];
    kept[last] = true;
  }
  uint64_t length = 0;
  return AreRows(
             to, [&](size_t i) { return kept[i]; }, length) &&
         length <= kMaxRow;
}

std::optional<Attributes> PartAttributes(const TensorType& whole, const TensorType& part,
                                         size_t dimension, int64_t start) {
  if (ElementsOf(whole) == 0u) return Attributes();
  int64_t outer = 1;
  for (size_t i = 0; i < dimension; ++i) outer *= whole.dims[i];
  int64_t inner = 1;
  for (size_t i = dimension + 1; i < whole.dims.size(); ++i) inner *= whole.dims[i];
  const int64_t bits = InfoOf(whole.dtype).bits;
  const int64_t begin = start * inner;
  if (begin * bits % 8 != 0) return std::nullopt;
  Attributes attributes = {{A::kOffset, begin * bits / 8}};
  if (outer == 1) {
    // The next part would begin in the middle of this one's last byte.
    const bool last = start + part.dims[dimension] == whole.dims[dimension];
    if (!last && part.dims[dimension] * inner * bits % 8 != 0) return std::nullopt;
    return attributes;
  }
  if (bits < 8) return std::nullopt;
  std::vector<int64_t> strides(whole.dims.size());
  int64_t stride = 1;
  for (size_t i = strides.size(); i > 0; --i) {
    strides[i - 1] = stride;
    stride *= whole.dims[i - 1];
  }
  attributes.Set(A::kStrides, std::move(strides));
  return attributes;
}

}  // namespace ferry::compute
