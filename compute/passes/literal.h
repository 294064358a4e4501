// SPDX-License-Identifier: Apache-2.0
// Constants while they are computed with, and what ops make of them. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "compute/program/program.h"

namespace ferry::compute {

// A tensor by the bits of its elements: one that all are, or each.
struct Literal {
  TensorType type;
  std::vector<uint64_t> codes;

  bool same() const { return codes.size() == 1; }
  uint64_t at(size_t index) const { return codes[same() ? 0 : index]; }
};

// Of a constant of `type`.
Literal LiteralOf(const TensorType& type, const Attributes& constant);
// A constant that is `literal`, which is small (see below) or has one element for all.
Node ConstantOf(const Literal& literal);

// The result of `node`, which has `type`, of these operands: what ConstantOf takes. Nothing if it
// is not folded, or too large to be.
std::optional<Literal> Evaluate(const Node& node, const TensorType& type,
                                absl::Span<const Literal* const> operands);

// Is each element of the result, of `type`, made of those at its place? `first`: of operand 0.
bool IsElementwise(const Node& node, const TensorType& type, const TensorType& first);
// May a constant have all elements of `type` one by one?
bool IsSmall(const TensorType& type);
// One element, for ops that make each of those at its place in operands of `types`.
std::optional<uint64_t> EvaluateElement(const Node& node, DType result,
                                        absl::Span<const DType> types,
                                        absl::Span<const uint64_t> codes);
// For ops that only move elements, of operands that are not all the same.
std::optional<Literal> Move(const Node& node, const TensorType& type,
                            absl::Span<const Literal* const> operands);

}  // namespace ferry::compute
