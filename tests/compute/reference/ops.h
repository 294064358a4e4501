// SPDX-License-Identifier: Apache-2.0
// The ops of the reference evaluator, in groups. Each function computes an op's results from its
// operands. Pure functions.
#pragma once

#include <vector>

#include "compute/program/program.h"
#include "tests/compute/reference/memory.h"
#include "tests/compute/reference/tensor.h"

namespace ferry::compute::testing {

struct OpInput {
  const Numerics& numerics;
  const Node& node;
  const std::vector<TensorType>& results;
  const std::vector<const Tensor*>& in;

  int64_t Int(Attribute attribute) const { return node.attributes.Int(attribute); }
  std::vector<int64_t> Ints(Attribute attribute) const {
    const auto list = node.attributes.Ints(attribute);
    return {list.begin(), list.end()};
  }
};

Tensor EvaluateSource(const OpInput& op);
Tensor EvaluateElementwise(const OpInput& op);
Tensor EvaluateBitcast(const OpInput& op);
Tensor EvaluateMove(const OpInput& op);
Tensor EvaluateReduce(const OpInput& op);
Tensor EvaluateArgmax(const OpInput& op);
Tensor EvaluateCumulativeSum(const OpInput& op);
Tensor EvaluateDot(const OpInput& op);
Tensor EvaluateBlockScaledDot(const OpInput& op);
std::vector<Tensor> EvaluateQuantize(const OpInput& op);
Tensor EvaluateDequantize(const OpInput& op);
Tensor EvaluateSwizzle(const OpInput& op);
Tensor EvaluateChecksum(const OpInput& op);
std::vector<Tensor> EvaluateDeltaEncode(const OpInput& op);
// delta_apply, of operands `in`, to its buffer.
void ApplyDelta(const Node& node, const std::vector<const Tensor*>& in, Memory& buffer);

}  // namespace ferry::compute::testing
