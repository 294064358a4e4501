// SPDX-License-Identifier: Apache-2.0
// Constants as values to compute with, and the results of ops on constants. Pure functions; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "compute/program/program.h"

namespace ferry::compute {

// A tensor by the bits of its elements: one code if all are equal, else one for each element.
struct Literal {
  TensorType type;
  std::vector<uint64_t> codes;

  bool same() const { return codes.size() == 1; }
  uint64_t at(size_t index) const { return codes[same() ? 0 : index]; }
};

// The value of a constant of `type`.
Literal LiteralOf(const TensorType& type, const Attributes& constant);
// A constant node for `literal`, which must be small (IsSmall) or have all elements equal.
Node ConstantOf(const Literal& literal);

// The result, of type `type`, of `node` on these operands; fit for ConstantOf(). Nothing if the op
// is not folded, or if the result is too large.
std::optional<Literal> Evaluate(const Node& node, const TensorType& type,
                                absl::Span<const Literal* const> operands);

// Whether each element of the result depends only on the operands' elements at its position. `type`
// is the result's, `first` that of operand 0.
bool IsElementwise(const Node& node, const TensorType& type, const TensorType& first);
// Whether a constant of `type` may list its elements one by one.
bool IsSmall(const TensorType& type);
// One element of the result of an elementwise op, from the codes of its operands, which have
// `types`.
std::optional<uint64_t> EvaluateElement(const Node& node, DType result,
                                        absl::Span<const DType> types,
                                        absl::Span<const uint64_t> codes);
// The result of an op that only moves elements, for operands whose elements are not all equal.
std::optional<Literal> Move(const Node& node, const TensorType& type,
                            absl::Span<const Literal* const> operands);

}  // namespace ferry::compute
