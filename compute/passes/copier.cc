// SPDX-License-Identifier: Apache-2.0
#include "compute/passes/copier.h"

#include <utility>

namespace ferry::compute {
namespace {

bool Keeps(const Kept& kept, size_t index) { return kept.empty() || kept[index]; }

}  // namespace

Copier::Copier(const Program& from)
    : values(from.types.size(), kGone), ops(from.nodes.size(), kGone), from_(from) {
  to_.numerics = from.numerics;
  to_.buffers = from.buffers;
}

Program Copier::Run(absl::FunctionRef<void(OpIndex)> with,
                    absl::FunctionRef<void(OpIndex)> closed) {
  for (size_t i = 0; i < from_.nodes.size();) {
    CloseUntil(i, closed);
    with(static_cast<OpIndex>(i));
    const bool entered = !open_.empty() && open_.back().repeat == i;
    i += entered ? 1 : from_.nodes[i].body + 1;
  }
  CloseUntil(from_.nodes.size(), closed);
  return std::move(to_);
}

Node Copier::Renumbered(OpIndex index, const Kept& kept) const {
  Node node = from_.nodes[index];
  node.operands.clear();
  for (size_t i = 0; i < from_.nodes[index].operands.size(); ++i) {
    if (Keeps(kept, i)) node.operands.push_back(values[from_.nodes[index].operands[i]]);
  }
  for (OpIndex& other : node.after) other = ops[other];
  return node;
}

OpIndex Copier::Put(OpIndex index, Node node, const Kept& kept) {
  const Node& old = from_.nodes[index];
  std::vector<TensorType> types;
  for (uint32_t i = 0; i < old.results; ++i) {
    if (Keeps(kept, i)) types.push_back(from_.types[old.first_result + i]);
  }
  node.body = 0;
  node.yielded.clear();
  const OpIndex put = to_.Append(std::move(node), std::move(types));
  const Node& now = to_.nodes[put];
  ops[index] = put;
  const auto name = [&](ValueId first_old, ValueId first_now) {
    for (uint32_t i = 0; i < old.results; ++i) {
      if (Keeps(kept, i)) values[first_old + i] = first_now++;
    }
  };
  name(old.first_result, now.first_result);
  if (now.op == Op::kRepeat) {
    values[old.first_parameter()] = now.first_parameter();
    name(old.first_parameter() + 1, now.first_parameter() + 1);
    open_.push_back({index, size_t{index} + 1 + old.body, kept});
  }
  return put;
}

void Copier::CloseUntil(size_t index, absl::FunctionRef<void(OpIndex)> closed) {
  while (!open_.empty() && open_.back().end <= index) {
    const Open open = std::move(open_.back());
    open_.pop_back();
    const Node& old = from_.nodes[open.repeat];
    std::vector<ValueId> yielded;
    for (size_t i = 0; i < old.yielded.size(); ++i) {
      if (Keeps(open.kept, i)) yielded.push_back(values[old.yielded[i]]);
    }
    to_.Close(ops[open.repeat], std::move(yielded));
    closed(open.repeat);
  }
}

std::vector<bool> FixedOps(const Program& program) {
  std::vector<bool> fixed(program.nodes.size(), true);
  const std::vector<OpIndex> definitions = DefinitionsOf(program);
  for (const Node& node : program.nodes) {
    for (const ValueId value : node.operands) fixed[definitions[value]] = false;
    for (const ValueId value : node.yielded) fixed[definitions[value]] = false;
  }
  const std::vector<bool> ordered = OrderedOps(program);
  for (size_t i = 0; i < fixed.size(); ++i) fixed[i] = fixed[i] || ordered[i];
  return fixed;
}

}  // namespace ferry::compute
