// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compute/passes/copier.h"
#include "compute/passes/literal.h"
#include "compute/passes/passes.h"

namespace ferry::compute {
namespace {

bool IsSorted(absl::Span<const int64_t> list) { return std::is_sorted(list.begin(), list.end()); }

// Is the result of `node`, which has one operand, that operand?
bool ChangesNothing(const Program& program, const Node& node) {
  if (node.operands.size() != 1 || node.results != 1 ||
      program.types[node.operands[0]] != program.types[node.first_result]) {
    return false;
  }
  switch (node.op) {
    case Op::kConvert:
    case Op::kBitcastConvert:
    case Op::kReshape:
    case Op::kSlice:
    case Op::kConcatenate:
      return true;
    case Op::kBroadcastInDim:
      return IsSorted(node.attributes.Ints(Attribute::kDimensions));
    case Op::kTranspose:
      return IsSorted(node.attributes.Ints(Attribute::kPermutation));
    default:
      return false;
  }
}

// What a constant, or an op of constants only, comes to.
std::optional<Literal> LiteralOf(const Node& node, const TensorType& type,
                                 const std::map<ValueId, Literal>& known) {
  if (node.op == Op::kConstant) return LiteralOf(type, node.attributes);
  std::vector<const Literal*> operands;
  for (const ValueId operand : node.operands) {
    const auto at = known.find(operand);
    if (at == known.end()) return std::nullopt;
    operands.push_back(&at->second);
  }
  return Evaluate(node, type, operands);
}

}  // namespace

Program FoldConstants(const Program& program) {
  const std::vector<bool> fixed = FixedOps(program);
  Copier copier(program);
  std::map<ValueId, Literal> known;  // by value of the copy
  return copier.Run([&](OpIndex index) {
    const Node& old = program.nodes[index];
    Node node = copier.Renumbered(index);
    if (fixed[index] || old.results != 1 || old.op == Op::kRepeat ||
        InfoOf(old.op).effect != Effect::kPure) {
      copier.Put(index, std::move(node));
      return;
    }
    if (ChangesNothing(program, old)) {
      copier.values[old.first_result] = node.operands[0];
      return;
    }
    std::optional<Literal> literal = LiteralOf(node, program.types[old.first_result], known);
    if (literal) {
      Node constant = ConstantOf(*literal);
      constant.label = std::move(node.label);
      node = std::move(constant);
    }
    const OpIndex put = copier.Put(index, std::move(node));
    if (literal) known.emplace(copier.to().Result(put), *std::move(literal));
  });
}

}  // namespace ferry::compute
