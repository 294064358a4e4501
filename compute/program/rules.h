// SPDX-License-Identifier: Apache-2.0
// The type rule of every op: the types of its results, given its operands and attributes, or the
// rule that is broken. Pure functions of types. Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compute/program/program.h"

namespace ferry::compute {

struct RuleInput {
  const OpInfo& info;
  absl::Span<const TensorType* const> in;  // as many as the op's row allows
  const Attributes& attributes;            // attributes that the row allows, each within its bounds
  absl::Span<const TensorType> said;       // result types as written; none or all of them
};

struct Inference {
  std::vector<TensorType> results;
  absl::string_view rule;  // the rule that is broken; empty: none is
  std::string text;        // what the rule says about these types
  bool ok() const { return rule.empty(); }
};

// All that can be said of `node` by its operands' types: counts, attributes, and the op's own rule.
// If `said` is not empty it is compared with what follows from the operands. The operands must
// exist.
Inference Infer(const Program& program, const Node& node, absl::Span<const TensorType> said);
// What is wrong with a type by itself: rank, dimensions, size. If nothing is, `rule` is empty.
Inference CheckType(const TensorType& type);

namespace rules {

// A broken rule and the text about it.
Inference Broken(absl::string_view rule, std::string text);
Inference Results(std::vector<TensorType> types);
// The result type as written, for an op whose result type does not follow from its operands; broken
// if none is written.
Inference MustSay(const RuleInput& input);
// Why `strides` are wrong for `type`; no rule is broken if they are right.
Inference CheckStrides(const TensorType& type, absl::Span<const int64_t> strides, bool written);

#define FERRY_OP_RULE(op, name, buffers, operands, results, must, may, dtypes, effect, cost, rule) \
  Inference rule(const RuleInput& input);
FERRY_OPS(FERRY_OP_RULE)  // a rule that several ops have is declared as often
#undef FERRY_OP_RULE

}  // namespace rules
}  // namespace ferry::compute
