// SPDX-License-Identifier: Apache-2.0
#include "compute/plan/kernel_loop.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "compute/numerics/convert.h"

namespace ferry::compute {

using A = Attribute;

std::vector<size_t> ReductionOrder(const Node& node, const TensorType& type) {
  std::vector<int64_t> reduced = {node.attributes.Int(A::kDimension)};
  if (node.op == Op::kReduce) {
    const auto list = node.attributes.Ints(A::kDimensions);
    reduced.assign(list.begin(), list.end());
  }
  std::vector<size_t> order;
  for (const bool is_reduced : {false, true}) {
    for (size_t d = 0; d < type.dims.size(); ++d) {
      const bool found =
          std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(d)) != reduced.end();
      if (found == is_reduced) order.push_back(d);
    }
  }
  return order;
}

bool IsMove(Op op) {
  return op == Op::kReshape || op == Op::kBroadcastInDim || op == Op::kTranspose ||
         op == Op::kSlice || op == Op::kReverse;
}

View BufferView(const Node& node, const TensorType& type) {
  View view = LinearView(type.dims);
  const auto strides = node.attributes.Ints(A::kStrides);
  if (!strides.empty()) view.strides = {strides.begin(), strides.end()};
  return view;
}

uint64_t RowsOf(const TensorType& type) {
  uint64_t rows = 1;
  for (size_t d = 0; d + 1 < type.dims.size(); ++d) rows *= static_cast<uint64_t>(type.dims[d]);
  return rows;
}

uint64_t BlockOf(const Node& node, const TensorType& data, const TensorType& scales) {
  if (node.attributes.Has(A::kBlock)) return static_cast<uint64_t>(node.attributes.Int(A::kBlock));
  return scales.dims.back() == 0 ? 1 : static_cast<uint64_t>(data.dims.back() / scales.dims.back());
}

DType AccumulatorOf(const Node& node, DType type) {
  if (node.attributes.Has(A::kAccumulate)) {
    return static_cast<DType>(node.attributes.Int(A::kAccumulate));
  }
  return type == DType::kF16 || type == DType::kBF16 ? DType::kF32 : type;
}

uint64_t IdentityOf(Reduction reduction, DType type) {
  const auto of = [&](double value) {
    uint64_t code = 0;
    Convert(DType::kF64, reinterpret_cast<const std::byte*>(&value), type,
            reinterpret_cast<std::byte*>(&code), 1);
    return code;
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();  // or an integer's end
  switch (reduction) {
    case Reduction::kProduct:
    case Reduction::kAll:
      return of(1);
    case Reduction::kMax:
      return of(-kInfinity);
    case Reduction::kMin:
      return of(kInfinity);
    default:
      return 0;
  }
}

KernelLoop LoopOf(const Program& kernel) {
  KernelLoop made;
  const auto elements_of = [&](ValueId value) { return *ElementsOf(kernel.types[value]); };
  std::vector<bool> loop(kernel.types.size());
  // Of the stores of more or less than one element: the most elements, and the fewest.
  std::optional<uint64_t> stored;
  uint64_t least = 0;
  bool stores_one = false;
  const auto rows_are = [&](uint64_t rows, uint64_t elements) {
    made.has_rows = true;
    made.rows = rows;
    made.elements = elements;
  };
  for (const Node& node : kernel.nodes) {
    const bool of_loop = std::any_of(node.operands.begin(), node.operands.end(),
                                     [&](ValueId value) { return loop[value]; });
    switch (node.op) {
      case Op::kReduce:
      case Op::kArgmax:
        rows_are(elements_of(node.first_result), elements_of(node.operands[0]));
        break;
      case Op::kQuantizeBlock:
      case Op::kDequantizeBlock:
        rows_are(RowsOf(kernel.types[node.first_result]), elements_of(node.first_result));
        break;
      case Op::kBroadcastInDim:
        if (of_loop) rows_are(elements_of(node.operands[0]), elements_of(node.first_result));
        break;
      case Op::kStore:
      case Op::kAccumulate:
        if (elements_of(node.operands[0]) == 1) {
          stores_one = true;
        } else {
          const uint64_t elements = elements_of(node.operands[0]);
          least = stored ? std::min(least, elements) : elements;
          stored = std::max(stored.value_or(0), elements);
        }
        break;
      default:
        break;
    }
    const bool source = node.op == Op::kInput || node.op == Op::kConstant || node.op == Op::kIota;
    for (uint32_t i = 0; i < node.results; ++i) {
      const ValueId value = node.first_result + i;
      loop[value] = of_loop || (!source && !IsMove(node.op) &&
                                (elements_of(value) != 1 || node.op == Op::kRngBits ||
                                 node.op == Op::kReduce || node.op == Op::kArgmax ||
                                 node.op == Op::kQuantizeBlock || node.op == Op::kDequantizeBlock));
    }
  }
  if (!made.has_rows) made.elements = stored.value_or(1);
  // A tensor that is read from memory is stored once for each row, and a broadcast of it for each
  // element; no op of the loop says what the rows are.
  if (!made.has_rows && stored && least < *stored) rows_are(least, *stored);
  // Spread: one row.
  if (stores_one && stored) made.has_rows = true;
  made.row = made.rows == 0 ? 0 : made.elements / made.rows;
  return made;
}

}  // namespace ferry::compute
