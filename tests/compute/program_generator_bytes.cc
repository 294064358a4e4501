// SPDX-License-Identifier: Apache-2.0
// Ops that take tensors as bytes.
#include "compute/program/delta.h"
#include "tests/compute/program_generator.h"

namespace ferry::compute::testing {

using A = Attribute;

void ProgramGenerator::AddDelta(Op op) {
  ValueId after = Any(dtypes::kNoBool);
  ValueId before = after;
  if (Chance(50)) {  // what differs in a part
    const DType type = Pick(dtypes::kIntegers);
    const ValueId same = Value({type, {static_cast<int64_t>(Below(400))}});
    const TensorType part = {type, {static_cast<int64_t>(Below(400))}};
    const ValueId from = Value(part);
    before = Add(Op::kConcatenate, {same, from}, {{A::kDimension, int64_t{0}}});
    const ValueId to = Value(part);
    after = Add(Op::kConcatenate, {same, to}, {{A::kDimension, int64_t{0}}});
  } else if (Chance(70)) {
    before = Value(program_.types[after]);
  }
  const TensorType type = program_.types[after];
  if (*ElementsOf(type) * InfoOf(type.dtype).bits % 8 != 0) return;
  if (op == Op::kChecksum) {
    Add(op, {after});
    return;
  }
  const auto bytes = static_cast<int64_t>(*BytesOf(type));
  const int64_t block = kLeastDeltaBlock << Below(3);
  const int64_t capacity = static_cast<int64_t>(Below(static_cast<uint64_t>(bytes / block) + 3));
  const TensorType values = {DType::kU8, {capacity, block}};
  const auto words = static_cast<int64_t>(DeltaSizesOf(*BytesOf(type), values).words);
  const ValueId bitmap =
      Add(Op::kDeltaEncode, {before, after}, {},
          {{DType::kU32, {words}}, values, {DType::kU32, {}}, {DType::kU64, {2}}});
  if (op == Op::kDeltaEncode) return;
  Node node;
  node.op = op;
  node.operands = {bitmap, bitmap + 1, bitmap + 2};
  if (Chance(10)) node.operands[2] = Value({DType::kU32, {}});
  const auto offset = static_cast<int64_t>(Below(40));
  node.attributes = {{A::kBytes, bytes}, {A::kOffset, offset}};
  node.buffers = {NewBuffer(Access::kReadWrite, *BytesOf(type) + 64)};
  AddNode(std::move(node), {});
}

}  // namespace ferry::compute::testing
