// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "compute/passes/copier.h"
#include "compute/passes/passes.h"

namespace ferry::compute {
namespace {

// All that makes an op what it is, in the names of the copy.
using Expression =
    std::tuple<Op, std::vector<ValueId>, std::vector<Attributes::Entry>, std::vector<std::string>>;

Expression ExpressionOf(const Program& program, const Node& old, const Node& now) {
  std::vector<std::string> types;
  for (const TensorType& type : program.ResultTypes(old)) types.push_back(ToString(type));
  return {now.op, now.operands, now.attributes.entries(), std::move(types)};
}

}  // namespace

Program MergeEqualOps(const Program& program) {
  const std::vector<bool> fixed = FixedOps(program);
  const std::vector<int64_t> parents = ParentsOf(program);
  Copier copier(program);
  // By the repeat whose body they are in (-1: none), the ops that were put.
  std::map<int64_t, std::map<Expression, OpIndex>> first;
  return copier.Run([&](OpIndex index) {
    const Node& old = program.nodes[index];
    Node node = copier.Renumbered(index);
    if (fixed[index] || InfoOf(old.op).effect != Effect::kPure || old.op == Op::kRepeat) {
      copier.Put(index, std::move(node));
      return;
    }
    const Expression expression = ExpressionOf(program, old, node);
    for (int64_t body = parents[index];; body = parents[body]) {
      const auto& known = first[body];
      if (const auto same = known.find(expression); same != known.end()) {
        for (uint32_t i = 0; i < old.results; ++i) {
          copier.values[old.first_result + i] = copier.to().Result(same->second, i);
        }
        return;
      }
      if (body < 0) break;
    }
    first[parents[index]][expression] = copier.Put(index, std::move(node));
  });
}

}  // namespace ferry::compute
