// SPDX-License-Identifier: Apache-2.0
// Block formats and products: operands whose shapes must fit each other.
#include <algorithm>
#include <utility>

#include "tests/compute/program_generator.h"

namespace ferry::compute::testing {

using A = Attribute;

void ProgramGenerator::AddBlocks(Op op) {
  const int64_t block = 1 + static_cast<int64_t>(Below(4));
  const auto scales_of = [&](const TensorType& data, DType type, int64_t padding) {
    TensorType scales = {type, data.dims};
    scales.dims.back() = (data.dims.back() + block - 1) / block + padding;
    return scales;
  };
  const bool nv = Chance(40);
  const DType scale = nv ? DType::kF8E4M3FN : DType::kF8E8M0FNU;
  const DType element = nv ? DType::kF4E2M1FN : Pick(dtypes::kSmallFloats);
  if (op == Op::kQuantizeBlock) {
    const ValueId value = Any(dtypes::kFloats, 1);
    const TensorType data = {element, program_.types[value].dims};
    std::vector<ValueId> operands = {value};
    if (nv) operands.push_back(Value({DType::kF32, {}}));
    Attributes attributes = {{A::kBlock, block}};
    if (!nv) attributes.Set(A::kRounding, static_cast<int64_t>(Below(3)));
    Add(op, operands, attributes, {data, scales_of(data, scale, 0)});
  } else if (op == Op::kDequantizeBlock) {
    const TensorType data = {element, Dims(1, 3)};
    const ValueId value = Value(data);
    const ValueId scales = Value(scales_of(data, scale, static_cast<int64_t>(Below(2))));
    Add(op, {value, scales}, {{A::kBlock, block}}, {{Pick(dtypes::kFloats), data.dims}});
  } else {  // kBlockScaledDot
    TensorType lhs = {element, Dims(2, 3)};
    TensorType rhs = {element, lhs.dims};
    rhs.dims[rhs.dims.size() - 2] = static_cast<int64_t>(Below(4));
    TensorType result = {Pick(dtypes::kFloats), lhs.dims};
    result.dims.back() = rhs.dims[rhs.dims.size() - 2];
    const bool plain = Chance(30);
    if (plain) rhs.dtype = Pick(dtypes::kFloats);
    std::vector<ValueId> operands = {Value(lhs), Value(rhs), Value(scales_of(lhs, scale, 0))};
    if (!plain) operands.push_back(Value(scales_of(rhs, scale, 1)));
    if (!plain && Chance(50)) operands.push_back(Value({DType::kF32, {}}));
    Add(op, operands, {{A::kBlock, block}}, {result});
  }
}

void ProgramGenerator::AddDot() {
  const bool floating = Chance(70);
  const DTypeSet factors = floating ? dtypes::kFloats | dtypes::kSmallFloats : dtypes::kIntegers;
  const DTypeSet sums = floating ? dtypes::kFloats : dtypes::kIntegers;
  const ValueId lhs = Any(factors, 1, 3);
  const TensorType left = program_.types[lhs];
  const std::vector<int64_t> order = Permutation(left.dims.size());
  const int64_t contract = order[0];
  std::vector<int64_t> batch(order.begin() + 1, order.begin() + 1 + Below(order.size()));
  // The right side: batch, contracted, its own.
  TensorType right = {Pick(factors), {}};
  std::vector<int64_t> rhs_batch;
  for (const int64_t dimension : batch) {
    rhs_batch.push_back(static_cast<int64_t>(right.dims.size()));
    right.dims.push_back(left.dims[dimension]);
  }
  const auto rhs_contract = static_cast<int64_t>(right.dims.size());
  right.dims.push_back(left.dims[contract]);
  TensorType result = {Pick(sums), {}};
  for (const int64_t dimension : batch) result.dims.push_back(left.dims[dimension]);
  for (size_t i = 0; i < left.dims.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    if (at != contract && std::count(batch.begin(), batch.end(), at) == 0) {
      result.dims.push_back(left.dims[i]);
    }
  }
  if (Chance(80)) {
    right.dims.push_back(static_cast<int64_t>(Below(4)));
    result.dims.push_back(right.dims.back());
  }
  Attributes attributes = {{A::kLhsBatch, batch},
                           {A::kRhsBatch, rhs_batch},
                           {A::kLhsContract, std::vector<int64_t>{contract}},
                           {A::kRhsContract, std::vector<int64_t>{rhs_contract}}};
  if (Chance(30)) attributes.Set(A::kAccumulate, static_cast<int64_t>(Pick(sums)));
  Add(Op::kDotGeneral, {lhs, Value(right)}, attributes, {result});
}

}  // namespace ferry::compute::testing
