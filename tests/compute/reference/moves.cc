// SPDX-License-Identifier: Apache-2.0
// Ops that only move elements: for each place of the result, which element of which operand.
#include <algorithm>
#include <utility>

#include "tests/compute/reference/ops.h"
#include "tests/compute/reference/scalar.h"

namespace ferry::compute::testing {
namespace {

using A = Attribute;
using Place = std::vector<int64_t>;

constexpr Element kUnknown = {0, kAnything, 0};

// An integer of a tensor, at an end of 0 to `most` if it is beyond it.
int64_t Clamped(const Tensor& tensor, uint64_t index, int64_t most) {
  const long double value = ValueOf(tensor.type.dtype, tensor.elements[index].code);
  return value <= 0 ? 0 : value >= most ? most : static_cast<int64_t>(value);
}

Element Padded(const OpInput& op, const Place& place) {
  const Tensor& in = *op.in[0];
  const Place low = op.Ints(A::kLow);
  const Place interior = op.Ints(A::kInterior);
  Place from = place;
  for (size_t d = 0; d < from.size(); ++d) {
    if (!low.empty()) from[d] -= low[d];
    const int64_t step = interior.empty() ? 1 : interior[d] + 1;
    if (from[d] < 0 || from[d] % step != 0 || from[d] / step >= in.type.dims[d]) {
      return op.in[1]->elements[0];
    }
    from[d] /= step;
  }
  return in.elements[IndexOf(in.type.dims, from)];
}

Element Concatenated(const OpInput& op, Place place) {
  int64_t& at = place[static_cast<size_t>(op.Int(A::kDimension))];
  for (const Tensor* part : op.in) {
    const int64_t length = part->type.dims[static_cast<size_t>(op.Int(A::kDimension))];
    if (at < length) return part->elements[IndexOf(part->type.dims, place)];
    at -= length;
  }
  return kUnknown;
}

Element Gathered(const OpInput& op, const Place& place) {
  const Tensor& rows = *op.in[0];
  const Tensor& indices = *op.in[1];
  const auto rank = static_cast<int64_t>(indices.type.dims.size());
  const uint64_t index = IndexOf(indices.type.dims, {place.begin(), place.begin() + rank});
  if (indices.elements[index].error != 0) return kUnknown;
  Place from = {Clamped(indices, index, rows.type.dims[0] - 1)};
  from.insert(from.end(), place.begin() + rank, place.end());
  return rows.elements[IndexOf(rows.type.dims, from)];
}

// Those that take each element from one place of the first operand.
Element Moved(const OpInput& op, const Place& place) {
  const Tensor& in = *op.in[0];
  const std::vector<int64_t>& dims = in.type.dims;
  Place from(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    switch (op.node.op) {
      case Op::kBroadcastInDim:
        from[d] = dims[d] == 1 ? 0 : place[static_cast<size_t>(op.Ints(A::kDimensions)[d])];
        break;
      case Op::kTranspose: {
        const Place permutation = op.Ints(A::kPermutation);
        const auto at = std::find(permutation.begin(), permutation.end(), static_cast<int64_t>(d));
        from[d] = place[static_cast<size_t>(at - permutation.begin())];
        break;
      }
      case Op::kSlice: {
        const Place step = op.Ints(A::kStep);
        from[d] = op.Ints(A::kStart)[d] + place[d] * (step.empty() ? 1 : step[d]);
        break;
      }
      case Op::kDynamicSlice: {
        const Tensor& start = *op.in[d + 1];
        if (start.elements[0].error != 0) return kUnknown;
        from[d] = Clamped(start, 0, dims[d] - op.Ints(A::kSizes)[d]) + place[d];
        break;
      }
      default: {  // kReverse
        const Place reversed = op.Ints(A::kDimensions);
        const bool is = std::count(reversed.begin(), reversed.end(), static_cast<int64_t>(d)) > 0;
        from[d] = is ? dims[d] - 1 - place[d] : place[d];
      }
    }
  }
  return in.elements[IndexOf(dims, from)];
}

}  // namespace

Tensor EvaluateMove(const OpInput& op) {
  Tensor out{op.results[0], {}};
  if (op.node.op == Op::kReshape) {
    out.elements = op.in[0]->elements;
    return out;
  }
  for (uint64_t i = 0; i < *ElementsOf(out.type); ++i) {
    const Place place = PlaceOf(out.type.dims, i);
    out.elements.push_back(op.node.op == Op::kPad           ? Padded(op, place)
                           : op.node.op == Op::kConcatenate ? Concatenated(op, place)
                           : op.node.op == Op::kGatherRows  ? Gathered(op, place)
                                                            : Moved(op, place));
  }
  return out;
}

}  // namespace ferry::compute::testing
