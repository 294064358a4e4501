// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "compute/passes/literal.h"

namespace ferry::compute {
namespace {

using Index = std::vector<int64_t>;

// The place of an element in row-major order.
size_t PlaceOf(const TensorType& type, const Index& index) {
  int64_t place = 0;
  for (size_t i = 0; i < index.size(); ++i) place = place * type.dims[i] + index[i];
  return static_cast<size_t>(place);
}

Index IndexOf(const TensorType& type, size_t place) {
  Index index(type.dims.size());
  for (size_t i = index.size(); i > 0; --i) {
    const auto dim = static_cast<size_t>(type.dims[i - 1]);
    index[i - 1] = static_cast<int64_t>(place % dim);
    place /= dim;
  }
  return index;
}

// Which element of `from` is that at `to` of the result; for ops of one operand but reshape.
Index Source(const Node& node, const TensorType& from, const Index& to) {
  using A = Attribute;
  Index index(from.dims.size());
  for (size_t i = 0; i < index.size(); ++i) {
    if (node.op == Op::kBroadcastInDim) {
      index[i] = from.dims[i] == 1 ? 0 : to[node.attributes.Ints(A::kDimensions)[i]];
    } else if (node.op == Op::kTranspose) {
      index[node.attributes.Ints(A::kPermutation)[i]] = to[i];
    } else if (node.op == Op::kSlice) {
      const auto step = node.attributes.Ints(A::kStep);
      index[i] = node.attributes.Ints(A::kStart)[i] + to[i] * (step.empty() ? 1 : step[i]);
    } else {  // kReverse
      const auto some = node.attributes.Ints(A::kDimensions);
      const bool turned =
          std::find(some.begin(), some.end(), static_cast<int64_t>(i)) != some.end();
      index[i] = turned ? from.dims[i] - 1 - to[i] : to[i];
    }
  }
  return index;
}

}  // namespace

std::optional<Literal> Move(const Node& node, const TensorType& type,
                            absl::Span<const Literal* const> operands) {
  Literal result{type, std::vector<uint64_t>(*ElementsOf(type))};
  for (size_t place = 0; place < result.codes.size(); ++place) {
    size_t operand = 0;
    size_t source = place;
    if (node.op == Op::kConcatenate) {
      const auto dimension = static_cast<size_t>(node.attributes.Int(Attribute::kDimension));
      Index index = IndexOf(type, place);
      while (index[dimension] >= operands[operand]->type.dims[dimension]) {
        index[dimension] -= operands[operand++]->type.dims[dimension];
      }
      source = PlaceOf(operands[operand]->type, index);
    } else if (node.op != Op::kReshape) {
      source = PlaceOf(operands[0]->type, Source(node, operands[0]->type, IndexOf(type, place)));
    }
    result.codes[place] = operands[operand]->at(source);
  }
  return result;
}

}  // namespace ferry::compute
