// SPDX-License-Identifier: Apache-2.0
// What is done where it is needed: ops that become part of a product or a reduction, and ops that
// are done anew.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "compute/numerics/reduction_order.h"
#include "compute/plan/kernel_loop.h"
#include "compute/plan/partition.h"
#include "compute/plan/rows.h"

namespace ferry::compute {
namespace {

constexpr size_t kMaxDuplicates = 2;  // fusions that do a cheap op anew

// Whether the elements of a tensor lie in memory in the order of its dimensions, the last one
// first, and neighbours no more than kMaxStep elements apart. A dimension that is broadcast has
// stride 0, and may be anywhere.
bool LieInOrder(const Views& views) {
  constexpr int64_t kMaxStep = 4;
  if (views.size() != 1) return false;
  int64_t least = 0;  // the stride of the dimension behind; 0: there is none
  for (size_t d = views[0].dims.size(); d-- > 0;) {
    const int64_t stride = std::abs(views[0].strides[d]);
    if (views[0].dims[d] == 1 || stride == 0) continue;
    if (stride < least || (least == 0 && stride > kMaxStep)) return false;
    least = stride;
  }
  return true;
}

}  // namespace

void Partition::Absorb(ItemId user, ValueId value, absl::FunctionRef<bool(const Fusion&)> fit) {
  if (!graph_.IsMadeIn(value, graph_.items[user].block)) return;
  const uint32_t from = IndexOf(graph_.definitions[value]);
  const uint32_t into = IndexOf(user);
  const Fusion& fusion = all_[from];
  const Fusion& whole = all_[into];
  if (from == into || !fusion.simple || fusion.product != kNoItem ||
      fusion.ops + whole.ops > kMaxKernelOps) {
    return;
  }
  // Before `fit`, which looks at the result of each node: a node that stores has none.
  const bool only = std::all_of(fusion.items.begin(), fusion.items.end(), [&](ItemId one) {
    const Node& node = graph_.items[one].node;
    if (node.results != 1) return false;
    const std::vector<ItemId>& users = graph_.users[node.first_result];
    return std::all_of(users.begin(), users.end(),
                       [&](ItemId other) { return other == user || fusion.Has(other); });
  });
  if (!only || !fit(fusion) || !waits_->MayJoin(from, into) || AreOrdered(fusion, whole) ||
      !TouchApart(fusion, whole, true) || IsBetween(from, into)) {
    return;
  }
  for (const ItemId item : fusion.items) absorbed_[Place(item)] = true;
  const uint64_t elements = whole.elements;
  Join(std::min(from, into), std::max(from, into));
  FusionOf(user).elements = elements;
  FusionOf(user).simple = false;
}

bool Partition::FitColumns(const Fusion& fusion, const Node& reduction) const {
  const TensorType& type = graph_.types[reduction.operands[0]];
  const uint64_t results = graph_.Elements(reduction.first_result);
  const uint64_t row = results == 0 ? 0 : *ElementsOf(type) / results;
  const bool few = results * (row > kMaxRow ? row / kReductionChunk : 1) < kFewResults;
  std::set<ValueId> read;
  for (const ItemId id : fusion.items) {
    const Node& node = graph_.items[id].node;
    if (node.op == Op::kRngBits || node.op == Op::kReshape || node.op == Op::kInput ||
        graph_.types[node.first_result].dims != type.dims ||
        (few && InfoOf(node.op).cost.transcendentals > 0)) {
      return false;
    }
    for (const ValueId operand : node.operands) read.insert(graph_.sources[operand]);
  }
  int bits = 0;
  for (const ValueId value : read) {
    const ItemId made_by = graph_.definitions[value];
    const bool inlined = made_by != kNoItem && graph_.items[made_by].role == Role::kInlined;
    if (fusion.Has(made_by) || (inlined && graph_.roots[value].empty()) ||
        graph_.types[value].dims != type.dims) {
      continue;
    }
    if (!LieInOrder(graph_.ViewsOf(value))) return false;
    bits += std::max(InfoOf(graph_.types[value].dtype).bits, 8);
  }
  return fusion.items.size() <= kMaxColumnOps && bits <= kMaxColumnBits;
}

// What a reduction over other dimensions than the last reduces.
void Partition::AbsorbReduced() {
  for (const ItemId id : block_.items) {
    const Item& item = graph_.items[id];
    if (item.role != Role::kOpaque || !FusionOf(id).reduces) continue;
    Absorb(id, item.node.operands[0],
           [&](const Fusion& fusion) { return FitColumns(fusion, item.node); });
  }
}

// Elementwise ops of which a product alone uses what they make.
void Partition::AbsorbFactors() {
  for (const ItemId id : block_.items) {
    const Item& item = graph_.items[id];
    if (item.role != Role::kProduct) continue;
    for (const ValueId value : item.node.operands) {
      Absorb(id, value, [](const Fusion&) { return true; });
    }
  }
}

bool Partition::ReadsTheSame(const Item& item) const {
  const std::vector<ValueId>& operands = item.node.operands;
  return std::none_of(operands.begin(), operands.end(), [&](ValueId value) {
    const std::vector<ValueId>& roots = graph_.roots[value];
    return std::any_of(roots.begin(), roots.end(), [&](ValueId v) { return graph_.changing[v]; });
  });
}

// Is it no more to do it anew than to read what it makes?
bool Partition::IsCheap(const Item& item) const {
  const OpCost& cost = InfoOf(item.node.op).cost;
  if (item.role != Role::kPointwise || item.node.operands.empty() || cost.flops > 2 ||
      cost.transcendentals > 0 || !ReadsTheSame(item)) {
    return false;
  }
  uint64_t bytes = 0;
  for (const ValueId value : item.node.operands) {
    const ItemId definition = graph_.definitions[value];
    const bool inlined = definition != kNoItem && graph_.items[definition].role == Role::kInlined;
    if (!inlined || !graph_.roots[value].empty()) bytes += *BytesOf(graph_.types[value]);
  }
  return bytes <= *BytesOf(graph_.types[item.node.first_result]);
}

void Partition::DuplicateCheap() {
  for (const ItemId id : block_.items) {
    const Item& item = graph_.items[id];
    if (!IsCheap(item)) continue;
    const std::vector<ValueId>& operands = item.node.operands;
    bool possible = std::none_of(operands.begin(), operands.end(), [&](ValueId value) {
      return graph_.IsMadeIn(value, item.block) && (AreTogether(graph_.definitions[value], id) ||
                                                    IsDuplicated(graph_.definitions[value]));
    });
    std::set<uint32_t> fusions;
    for (const ItemId user : graph_.users[item.node.first_result]) {
      const Role role = graph_.items[user].role;
      const bool in_loop = role == Role::kPointwise || role == Role::kReduction ||
                           role == Role::kSink || role == Role::kQuantize;
      possible = possible && graph_.items[user].block == item.block && in_loop;
      if (!possible) break;
      // No more is done with elements that are reduced than FitColumns has counted.
      possible = !absorbed_[Place(user)] || !FusionOf(user).reduces;
      if (!possible) break;
      if (!AreTogether(user, id)) fusions.insert(IndexOf(user));
    }
    if (!possible || fusions.empty() || fusions.size() > kMaxDuplicates) continue;
    const bool room = std::all_of(fusions.begin(), fusions.end(), [&](uint32_t fusion) {
      return all_[fusion].ops + item.ops <= kMaxKernelOps;
    });
    if (!room) continue;
    for (const uint32_t fusion : fusions) all_[fusion].ops += item.ops;
    duplicated_[Place(id)] = true;
  }
}

// Scales that products alone use are unswizzled in the step of each product: an executor whose
// library reads swizzled scales gives it those, and leaves the op out.
void Partition::DuplicateUnswizzled() {
  for (const ItemId id : block_.items) {
    const Item& item = graph_.items[id];
    if (item.node.op != Op::kUnswizzleScales || !ReadsTheSame(item)) continue;
    const std::vector<ItemId>& users = graph_.users[item.node.first_result];
    duplicated_[Place(id)] = std::all_of(users.begin(), users.end(), [&](ItemId user) {
      return graph_.items[user].block == item.block && graph_.items[user].role == Role::kProduct;
    });
  }
}

}  // namespace ferry::compute
