// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "compute/passes/literal.h"
#include "compute/passes/passes.h"

namespace ferry::compute {

Program FillEmpty(Program program, bool poison) {
  for (Node& node : program.nodes) {
    if (node.op != Op::kEmpty) continue;
    const TensorType& type = program.types[node.first_result];
    // Of bool true: other bytes are none of its values.
    const uint64_t ones =
        type.dtype == DType::kBool ? 1 : ~uint64_t{0} >> (64 - InfoOf(type.dtype).bits);
    Node filled = ConstantOf({type, {poison ? ones : 0}});
    node.op = filled.op;
    node.attributes = std::move(filled.attributes);
  }
  return program;
}

}  // namespace ferry::compute
