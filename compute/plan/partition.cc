// SPDX-License-Identifier: Apache-2.0
#include "compute/plan/partition.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compute/plan/kernel_loop.h"

namespace ferry::compute {
namespace {

constexpr size_t kMaxTries = 8;  // of what reads the same, how many are tried

}  // namespace

Partition::Partition(const Graph& graph, BlockId block)
    : graph_(graph), block_(graph.blocks[block]), places_(graph.items.size()) {
  const size_t size = block_.items.size();
  for (size_t i = 0; i < size; ++i) places_[block_.items[i]] = i;
  in_rows_.resize(size);
  duplicated_.resize(size);
  absorbed_.resize(size);
  needs_.resize(size);
  users_.resize(size);
  for (const ItemId item : block_.items) {
    fusion_of_.push_back(static_cast<uint32_t>(all_.size()));
    all_.push_back(Alone(item));
    for (const ItemId need : graph.NeedsOf(item)) {
      needs_[Place(item)].push_back(static_cast<uint32_t>(Place(need)));
      users_[Place(need)].push_back(static_cast<uint32_t>(Place(item)));
    }
  }
  waits_.emplace(graph, block_, needs_, users_);
  JoinProducers();
  AbsorbReduced();
  JoinSiblings();
  AbsorbFactors();
  DuplicateCheap();
  DuplicateUnswizzled();
  Order();
}

size_t Partition::Place(ItemId item) const { return places_[item]; }

bool Partition::AreTogether(ItemId a, ItemId b) const {
  return fusion_of_[Place(a)] == fusion_of_[Place(b)];
}

Fusion Partition::Alone(ItemId id) const {
  const Item& item = graph_.items[id];
  const Node& node = item.node;
  Fusion fusion;
  fusion.items = {id};
  fusion.ops = item.ops;
  fusion.simple = item.role == Role::kPointwise || item.role == Role::kSink;
  fusion.opaque = item.role == Role::kOpaque;
  fusion.reduces = fusion.opaque && (node.op == Op::kReduce || node.op == Op::kArgmax);
  if (item.role == Role::kProduct) fusion.product = id;
  if (!IsClustered(item.role)) return fusion;
  const bool of_operand =
      item.role == Role::kSink || item.role == Role::kReduction || item.role == Role::kQuantize;
  const ValueId loop = of_operand ? node.operands[0] : node.first_result;
  fusion.elements = graph_.Elements(loop);
  if (item.role == Role::kReduction) fusion.rows = graph_.Elements(node.first_result);
  if (item.role == Role::kSpread) fusion.rows = graph_.Elements(node.operands[0]);
  if (item.role == Role::kQuantize || item.role == Role::kDequantize) {
    fusion.rows = RowsOf(graph_.types[loop]);
  }
  return fusion;
}

Level Partition::ResultLevel(ValueId value) const {
  const ItemId id = graph_.definitions[value];
  const Item& item = graph_.items[id];
  switch (item.role) {
    case Role::kPointwise:
      return OwnLevel(id);
    case Role::kReduction:
      return Level::kRow;
    case Role::kQuantize:
      return value == item.node.first_result ? Level::kFull : Level::kBlock;
    default:
      return Level::kFull;
  }
}

Level Partition::OperandLevel(ItemId id, size_t index) const {
  const Item& item = graph_.items[id];
  const ValueId value = item.node.operands[index];
  if (absorbed_[Place(id)]) return Level::kMemory;
  switch (item.role) {
    case Role::kPointwise:
      return graph_.Elements(value) == graph_.Elements(item.node.first_result) ? OwnLevel(id)
                                                                               : Level::kMemory;
    case Role::kReduction:
      return Level::kFull;
    case Role::kSpread:
      return Level::kRow;
    case Role::kQuantize:
    case Role::kDequantize:
      return index == 0 ? Level::kFull : Level::kMemory;
    case Role::kSink:
      return graph_.IsMadeIn(value, item.block) && AreTogether(id, graph_.definitions[value])
                 ? ResultLevel(value)
                 : OwnLevel(id);
    default:
      return Level::kMemory;
  }
}

void Partition::Flip(const Fusion& fusion, bool rows) {
  for (const ItemId item : fusion.items) in_rows_[Place(item)] = rows;
}

void Partition::Join(uint32_t into, uint32_t from) {
  Fusion& fusion = all_[into];
  Fusion& other = all_[from];
  for (const ItemId item : other.items) fusion_of_[Place(item)] = into;
  const size_t middle = fusion.items.size();
  fusion.items.insert(fusion.items.end(), other.items.begin(), other.items.end());
  std::inplace_merge(fusion.items.begin(), fusion.items.begin() + middle, fusion.items.end());
  fusion.simple = fusion.simple && other.simple;
  if (fusion.product == kNoItem) fusion.product = other.product;
  fusion.opaque = fusion.opaque || other.opaque;
  fusion.reduces = fusion.reduces || other.reduces;
  fusion.ops += other.ops;
  other = Fusion();
  waits_->Join(into, from);
}

bool Partition::AreOrdered(const Fusion& a, const Fusion& b) const {
  const auto one_way = [&](const Fusion& later, const Fusion& earlier) {
    return std::any_of(later.items.begin(), later.items.end(), [&](ItemId item) {
      const std::vector<ItemId>& before = graph_.items[item].before;
      return std::any_of(before.begin(), before.end(),
                         [&](ItemId other) { return earlier.Has(other); });
    });
  };
  return one_way(a, b) || one_way(b, a);
}

bool Partition::IsBetween(uint32_t a, uint32_t b) const {
  const auto one_way = [&](uint32_t from, uint32_t to) {
    std::vector<bool> seen(all_.size());
    std::vector<uint32_t> open = {from};
    seen[from] = true;
    while (!open.empty()) {
      const uint32_t fusion = open.back();
      open.pop_back();
      for (const ItemId item : all_[fusion].items) {
        for (const uint32_t user : users_[Place(item)]) {
          const uint32_t next = fusion_of_[user];
          if (next == to && fusion != from) return true;
          if (next == to || seen[next]) continue;
          seen[next] = true;
          open.push_back(next);
        }
      }
    }
    return false;
  };
  return one_way(a, b) || one_way(b, a);
}

bool Partition::IsFedBy(const Fusion& sink, const Fusion& fusion) const {
  if (sink.items.size() != 1 || graph_.items[sink.items[0]].role != Role::kSink) return false;
  return fusion.Has(graph_.definitions[graph_.items[sink.items[0]].node.operands[0]]);
}

// Is each value that passes between them made where it is needed?
bool Partition::Fit(const Fusion& a, const Fusion& b) const {
  const auto one_way = [&](const Fusion& from, const Fusion& to) {
    for (const ItemId item : to.items) {
      const std::vector<ValueId>& operands = graph_.items[item].node.operands;
      for (size_t i = 0; i < operands.size(); ++i) {
        if (!from.Has(graph_.definitions[operands[i]])) continue;
        const Level level = OperandLevel(item, i);
        if (level == Level::kMemory || level != ResultLevel(operands[i])) return false;
      }
    }
    return true;
  };
  return one_way(a, b) && one_way(b, a);
}

bool Partition::HaveOneLoop(const Fusion& a, const Fusion& b) {
  if (IsFedBy(a, b) || IsFedBy(b, a)) return true;
  if (a.opaque || b.opaque) {
    const Fusion& part = a.opaque ? b : a;
    return (a.reduces || b.reduces) && part.simple && a.elements == b.elements && Fit(a, b);
  }
  if (a.product != kNoItem || b.product != kNoItem) {
    return (a.product == kNoItem ? a : b).simple && a.elements == b.elements && Fit(a, b);
  }
  const bool rows_fit = !a.rows || !b.rows || *a.rows == *b.rows;
  if (rows_fit && a.elements == b.elements && Fit(a, b)) return true;
  for (const auto& [whole, part] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (!whole->rows || !part->simple || *whole->rows != part->elements) continue;
    Flip(*part, true);
    if (Fit(a, b)) return true;
    Flip(*part, false);
  }
  return false;
}

void Partition::Touches(const Fusion& fusion, const Fusion& other, std::vector<Touch>& reads,
                        std::vector<Touch>& writes) const {
  for (const ItemId id : fusion.items) {
    const Item& item = graph_.items[id];
    if (item.role == Role::kSink) {
      const ItemId made_by = graph_.definitions[item.node.operands[0]];
      const bool inside = fusion.Has(made_by) || other.Has(made_by);
      writes.push_back({&item, item.slot ? int64_t{*item.slot} : -1,
                        inside ? ResultLevel(item.node.operands[0]) : OwnLevel(id)});
    } else if (item.node.op == Op::kInput) {
      reads.push_back({&item, -1, OwnLevel(id)});
    }
    for (size_t i = 0; i < item.node.operands.size(); ++i) {
      const ValueId value = item.node.operands[i];
      for (const ValueId root : graph_.roots[value]) {
        const ItemId definition = graph_.definitions[root];
        const bool whole = graph_.sources[value] == root;
        reads.push_back({definition == kNoItem ? nullptr : &graph_.items[definition],
                         graph_.homes[root], whole ? OperandLevel(id, i) : Level::kMemory});
      }
    }
  }
}

bool Partition::Conflict(const Touch& read, const Touch& write, bool strictly) const {
  bool same = read.slot == write.slot;
  if (read.slot < 0 && write.slot < 0) {
    const Node& reader = read.item->node;
    const Node& writer = write.item->node;
    const BufferRange from = RangesOf(graph_.program, graph_.program.nodes[read.item->origin])[0];
    const BufferRange to = RangesOf(graph_.program, graph_.program.nodes[write.item->origin])[0];
    if (from.buffer != to.buffer || from.begin >= to.end || to.begin >= from.end) return false;
    const TensorType& read_type = graph_.types[reader.first_result];
    const TensorType& written_type = graph_.types[writer.operands[0]];
    const auto strides = reader.attributes.Ints(Attribute::kStrides);
    same = from.begin == to.begin && strides == writer.attributes.Ints(Attribute::kStrides) &&
           InfoOf(read_type.dtype).bits == InfoOf(written_type.dtype).bits &&
           (strides.empty() ? ElementsOf(read_type) == ElementsOf(written_type)
                            : read_type.dims == written_type.dims);
  } else if (!same) {
    return false;
  }
  return strictly || !same || read.level == Level::kMemory || read.level != write.level;
}

bool Partition::TouchApart(const Fusion& a, const Fusion& b, bool strictly) const {
  std::vector<Touch> reads;
  std::vector<Touch> writes;
  Touches(a, b, reads, writes);
  if (strictly) {
    std::vector<Touch> others;
    Touches(b, a, others, writes);
  } else {
    Touches(b, a, reads, writes);
  }
  for (const Touch& write : writes) {
    for (const Touch& read : reads) {
      if (Conflict(read, write, strictly)) return false;
    }
  }
  return true;
}

void Partition::TryJoin(uint32_t a, uint32_t b) {
  if (a == b) return;
  const Fusion& one = all_[a];
  const Fusion& other = all_[b];
  if (one.ops + other.ops > kMaxKernelOps || (one.product != kNoItem && other.product != kNoItem) ||
      !waits_->MayJoin(a, b) || AreOrdered(one, other) || !HaveOneLoop(one, other)) {
    return;
  }
  const auto flipped = [&](const Fusion& fusion) {
    return fusion.simple && in_rows_[Place(fusion.items[0])];
  };
  if (!TouchApart(one, other, false) || IsBetween(a, b)) {
    // Only what has just been taken for rows is simple and in rows.
    if (flipped(one)) Flip(one, false);
    if (flipped(other)) Flip(other, false);
    return;
  }
  const uint32_t into = std::min(a, b);
  const uint32_t from = std::max(a, b);
  const bool sink = IsFedBy(one, other);
  const Fusion& whole = sink || flipped(one) ? other : one;
  const uint64_t elements = whole.elements;
  const std::optional<uint64_t> rows = sink || IsFedBy(other, one) ? whole.rows
                                       : one.rows                  ? one.rows
                                                                   : other.rows;
  Join(into, from);
  all_[into].elements = elements;
  all_[into].rows = rows;
}

void Partition::JoinProducers() {
  for (const ItemId item : block_.items) {
    if (!IsClustered(graph_.items[item].role)) continue;
    for (const ValueId value : graph_.items[item].node.operands) {
      if (!graph_.IsMadeIn(value, graph_.items[item].block)) continue;
      TryJoin(IndexOf(graph_.definitions[value]), IndexOf(item));
    }
  }
}

// Fusions that go through the same elements of the same memory.
void Partition::JoinSiblings() {
  std::map<std::string, std::vector<ItemId>> readers;
  for (const ItemId id : block_.items) {
    const Item& item = graph_.items[id];
    if (!IsClustered(item.role)) continue;
    for (size_t i = 0; i < item.node.operands.size(); ++i) {
      const ValueId value = graph_.sources[item.node.operands[i]];
      const ItemId definition = graph_.definitions[value];
      if (OperandLevel(id, i) != Level::kFull) continue;
      if (graph_.IsMadeIn(value, item.block) && AreTogether(definition, id)) continue;
      std::string key = absl::StrCat(value);
      if (definition != kNoItem && graph_.items[definition].role == Role::kInlined) {
        const Node& node = graph_.items[definition].node;
        if (node.op != Op::kInput) continue;
        const TensorType& type = graph_.types[value];
        const auto strides = node.attributes.Ints(Attribute::kStrides);
        key = absl::StrCat("@", node.buffers[0], " ", node.attributes.Int(Attribute::kOffset), " ",
                           NameOf(type.dtype), " ", absl::StrJoin(strides, ","), " ",
                           strides.empty() ? "" : ToString(type));
      }
      std::vector<ItemId>& same = readers[key];
      for (size_t j = same.size(); j > 0 && same.size() - j < kMaxTries; --j) {
        const ItemId reader = same[j - 1];
        const Fusion& other = FusionOf(reader);
        const Fusion& fusion = FusionOf(id);
        const bool plain = other.product == kNoItem && fusion.product == kNoItem;
        if (plain && other.elements == fusion.elements) TryJoin(IndexOf(reader), IndexOf(id));
      }
      same.push_back(id);
    }
  }
}

// By their first op, but transfers as soon as they can be; first what waits for none, then what
// transfers wait for, then the rest: a run stops where it has to wait, and all after it with it.
void Partition::Order() {
  std::vector<std::set<uint32_t>> needs(all_.size());
  std::vector<std::vector<uint32_t>> users(all_.size());
  for (uint32_t place = 0; place < needs_.size(); ++place) {
    for (const uint32_t need : needs_[place]) {
      if (fusion_of_[need] == fusion_of_[place]) continue;
      if (needs[fusion_of_[place]].insert(fusion_of_[need]).second) {
        users[fusion_of_[need]].push_back(fusion_of_[place]);
      }
    }
  }
  std::set<std::tuple<int, size_t, uint32_t>> ready;
  std::vector<size_t> waiting(all_.size());
  const auto add = [&](uint32_t fusion) {
    const Op op = graph_.items[all_[fusion].items[0]].node.op;
    const size_t last = waits_->Last(fusion);
    const int turn = last == 0 ? 0 : waits_->IsAwaited(fusion) ? 1 : 2;
    ready.insert({turn, 2 * last + (op == Op::kSend || op == Op::kRecv ? 0 : 1), fusion});
  };
  for (uint32_t fusion = 0; fusion < all_.size(); ++fusion) {
    waiting[fusion] = needs[fusion].size();
    if (waiting[fusion] == 0 && !all_[fusion].items.empty()) add(fusion);
  }
  std::vector<std::set<uint32_t>> steps(all_.size());  // itself, or those it stands for
  while (!ready.empty()) {
    const uint32_t fusion = std::get<2>(*ready.begin());
    ready.erase(ready.begin());
    std::set<uint32_t> after;
    for (const uint32_t need : needs[fusion]) after.insert(steps[need].begin(), steps[need].end());
    const Role role = graph_.items[all_[fusion].items[0]].role;
    if (IsClustered(role) || role == Role::kAlone) {
      steps[fusion] = {static_cast<uint32_t>(fusions_.size())};
      fusions_.push_back(all_[fusion]);
      fusions_.back().after.assign(after.begin(), after.end());
    } else {
      steps[fusion] = std::move(after);
    }
    for (const uint32_t user : users[fusion]) {
      if (--waiting[user] == 0) add(user);
    }
  }
}

}  // namespace ferry::compute
