// SPDX-License-Identifier: Apache-2.0
// What is live is found first, backward from effects. When the rest goes, an op that came after
// another only by way of what went gets that other one in its `after`.
#include <algorithm>
#include <bitset>
#include <optional>
#include <utility>
#include <vector>

#include "compute/passes/copier.h"
#include "compute/passes/passes.h"
#include "compute/program/limits.h"

namespace ferry::compute {
namespace {

// Its results are each of one operand.
bool IsSelective(const Node& node) { return node.op == Op::kBarrier || node.op == Op::kRepeat; }

class Liveness {
 public:
  // Thorough: barriers and repeats need only the operands whose results are needed, repeats not all
  // of their body, and that an op is in somebody's `after` is no need.
  Liveness(const Program& program, bool thorough)
      : program_(program),
        thorough_(thorough),
        parents_(ParentsOf(program)),
        definitions_(DefinitionsOf(program)),
        ops_(program.nodes.size()),
        values_(program.types.size()) {
    for (OpIndex i = 0; i < program.nodes.size(); ++i) {
      if (InfoOf(program.nodes[i].op).effect == Effect::kSideEffecting) new_ops_.push_back(i);
    }
    while (!new_ops_.empty() || !new_values_.empty()) {
      if (!new_ops_.empty()) {
        const OpIndex op = new_ops_.back();
        new_ops_.pop_back();
        Use(op);
      } else {
        const ValueId value = new_values_.back();
        new_values_.pop_back();
        Spread(value);
      }
    }
  }

  bool IsLive(OpIndex op) const { return ops_[op]; }
  Kept LiveResults(const Node& node) const {
    const auto first = values_.begin() + node.first_result;
    return Kept(first, first + node.results);
  }

 private:
  void Need(ValueId value) {
    if (values_[value]) return;
    values_[value] = true;
    new_values_.push_back(value);
  }

  void Use(OpIndex op) {
    if (ops_[op]) return;
    ops_[op] = true;
    const Node& node = program_.nodes[op];
    if (parents_[op] >= 0) new_ops_.push_back(static_cast<OpIndex>(parents_[op]));
    if (!IsSelective(node)) {
      for (const ValueId value : node.operands) Need(value);
    }
    if (thorough_) return;
    for (OpIndex i = op + 1; i <= op + node.body; ++i) new_ops_.push_back(i);
    for (uint32_t i = 0; i < node.results; ++i) Need(node.first_result + i);
    new_ops_.insert(new_ops_.end(), node.after.begin(), node.after.end());
  }

  void Spread(ValueId value) {
    const OpIndex op = definitions_[value];
    const Node& node = program_.nodes[op];
    Use(op);
    if (!IsSelective(node) || (node.op == Op::kRepeat && value == node.first_parameter())) return;
    const bool parameter = value >= node.first_parameter();
    const uint32_t i = value - (parameter ? node.first_parameter() + 1 : node.first_result);
    Need(node.operands[i]);
    if (node.op != Op::kRepeat) return;
    Need(node.yielded[i]);
    Need(node.first_result + i);
    Need(node.first_parameter() + 1 + i);
  }

  const Program& program_;
  const bool thorough_;
  const std::vector<int64_t> parents_;
  const std::vector<OpIndex> definitions_;
  std::vector<bool> ops_;
  std::vector<bool> values_;
  std::vector<OpIndex> new_ops_;
  std::vector<ValueId> new_values_;
};

// Copies what is live.
class Remover {
 public:
  Remover(const Program& program, bool thorough)
      : program_(program),
        live_(program, thorough),
        parents_(ParentsOf(program)),
        definitions_(DefinitionsOf(program)),
        stands_for_(program.nodes.size()),
        copier_(program) {}

  // Nothing if an op has come to be after more others than one may be.
  std::optional<Program> Run() {
    Program result = copier_.Run([&](OpIndex index) { Pass(index); });
    for (const Node& node : result.nodes) {
      if (node.after.size() > kMaxOperands) return std::nullopt;
    }
    return result;
  }

 private:
  using OpSet = std::bitset<kMaxOps>;

  void Pass(OpIndex index) {
    const Node& node = program_.nodes[index];
    if (!live_.IsLive(index)) {
      for (OpIndex i = index; i <= index + node.body; ++i) {
        AddNeeds(program_.nodes[i], index, {}, stands_for_[index]);
      }
      // What it needed from outside of its body, the repeat did.
      PutAfter(index, stands_for_[index], true);
      return;
    }
    stands_for_[index].set(index);
    const Kept kept = IsSelective(node) ? live_.LiveResults(node) : Kept();
    Node copy = copier_.Renumbered(index, kept);
    copy.after.clear();
    copier_.Put(index, std::move(copy), kept);
    OpSet after;
    AddNeeds(node, index, kept, after);
    PutAfter(index, after, false);
  }

  // What `node` needs but for the operands that are kept: as ops above `index` that stay.
  void AddNeeds(const Node& node, OpIndex index, const Kept& kept, OpSet& needs) {
    const auto add_values = [&](const std::vector<ValueId>& values) {
      for (size_t i = 0; i < values.size(); ++i) {
        const OpIndex op = definitions_[values[i]];
        const bool stays = live_.IsLive(index) && (kept.empty() || kept[i]);
        if (!stays && op < index && !IsIn(index, op)) needs |= stands_for_[op];
      }
    };
    add_values(node.operands);
    add_values(node.yielded);
    for (const OpIndex other : node.after) {
      if (other < index) needs |= stands_for_[other];
    }
  }

  bool IsIn(OpIndex op, OpIndex repeat) const {
    int64_t at = parents_[op];
    while (at > repeat) at = parents_[at];
    return at == repeat;
  }

  // That `later` is after each of `earlier`, which stay, are above it, and of its body or of one
  // around it: where it is said. `outside`: only of those around it.
  void PutAfter(OpIndex later, const OpSet& earlier, bool outside) {
    if (earlier.none()) return;
    for (OpIndex i = 0; i < later; ++i) {
      if (!earlier[i] || (outside && parents_[i] == parents_[later])) continue;
      OpIndex at = later;
      while (parents_[at] != parents_[i]) at = static_cast<OpIndex>(parents_[at]);
      std::vector<OpIndex>& after = copier_.to().nodes[copier_.ops[at]].after;
      const OpIndex op = copier_.ops[i];
      if (after.size() > kMaxOperands) return;  // then Run gives it up
      const auto place = std::lower_bound(after.begin(), after.end(), op);
      if (place == after.end() || *place != op) after.insert(place, op);
    }
  }

  const Program& program_;
  const Liveness live_;
  const std::vector<int64_t> parents_;
  const std::vector<OpIndex> definitions_;
  std::vector<OpSet> stands_for_;  // by op: itself, or what of its needs stays
  Copier copier_;
};

}  // namespace

Program RemoveDeadCode(const Program& program) {
  std::optional<Program> result = Remover(program, true).Run();
  if (!result) result = Remover(program, false).Run();  // makes no op come after more than before
  return *std::move(result);
}

Program Simplify(const Program& program) {
  const auto cleaned = [](const Program& one) {
    return RemoveDeadCode(MergeEqualOps(JoinMoves(one)));
  };
  const auto in_parts = [&](const Program& one) {
    const bool any = std::any_of(one.nodes.begin(), one.nodes.end(), [](const Node& node) {
      return node.attributes.Has(Attribute::kParts);
    });
    return any ? PartTransfers(cleaned(one)) : one;
  };
  const Program simple = cleaned(FoldConstants(in_parts(program)));
  Program moved = MoveReductionsOutOfLoops(simple);
  return moved == simple ? moved : cleaned(moved);
}

}  // namespace ferry::compute
