// SPDX-License-Identifier: Apache-2.0
#include "compute/plan/graph.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/passes/literal.h"
#include "compute/passes/passes.h"
#include "compute/plan/rows.h"

namespace ferry::compute {
namespace {

using A = Attribute;

// Whether the op takes its operands as bytes in memory, which are dense.
bool TakesBytes(Op op) {
  return op == Op::kChecksum || op == Op::kDeltaEncode || op == Op::kDeltaApply;
}

class Builder {
 public:
  explicit Builder(const Program& program) {
    graph_.program = FillEmpty(program, /*poison=*/false);
    graph_.types = program.types;
    const size_t values = program.types.size();
    graph_.definitions.resize(values, kNoItem);
    graph_.homes.resize(values, -1);
    graph_.roots.resize(values);
    graph_.changing.resize(values);
    value_blocks_.resize(values);
    for (ValueId value = 0; value < values; ++value) graph_.sources.push_back(value);
    items_of_ops_.resize(program.nodes.size(), kNoItem);
  }

  absl::StatusOr<Graph> Run() {
    graph_.blocks.emplace_back();
    FindStoredParts();
    BuildBlock(0, graph_.program.nodes.size(), 0);
    if (graph_.items.size() > kMaxItems) {
      return Error(absl::StatusCode::kResourceExhausted, Reason::kBatchTooLarge,
                   absl::StrCat("plan a program: it comes to ", graph_.items.size(),
                                " ops and parts of ops, at most ", kMaxItems));
    }
    FindReaders();
    OrderWrites();
    graph_.users.resize(graph_.types.size());
    for (ItemId i = 0; i < graph_.items.size(); ++i) {
      for (const ValueId value : graph_.items[i].node.operands) {
        if (graph_.users[value].empty() || graph_.users[value].back() != i) {
          graph_.users[value].push_back(i);
        }
      }
    }
    return std::move(graph_);
  }

 private:
  const TensorType& TypeOf(ValueId value) const { return graph_.types[value]; }
  const Item* Definition(ValueId value) const {
    const ItemId item = graph_.definitions[graph_.sources[value]];
    return item == kNoItem ? nullptr : &graph_.items[item];
  }
  bool IsInlined(ValueId value) const {
    const Item* item = Definition(value);
    return item != nullptr && item->role == Role::kInlined;
  }

  ItemId Add(Node node, Role role, int64_t origin, BlockId block) {
    const auto id = static_cast<ItemId>(graph_.items.size());
    Item item;
    item.role = role;
    item.origin = origin;
    item.block = block;
    for (const ValueId value : node.operands) item.ops += OpsOf(value);
    for (const OpIndex other : node.after) item.before.push_back(items_of_ops_[other]);
    for (uint32_t i = 0; i < node.results; ++i) {
      const ValueId value = node.first_result + i;
      graph_.definitions[value] = id;
      value_blocks_[value] = block;
      if (node.op == Op::kInput) graph_.roots[value] = {value};
      if (role != Role::kInlined) continue;
      for (const ValueId operand : node.operands) {
        for (const ValueId root : graph_.roots[operand]) AddRoot(value, root);
      }
    }
    item.node = std::move(node);
    graph_.items.push_back(std::move(item));
    graph_.blocks[block].items.push_back(id);
    if (origin >= 0) items_of_ops_[origin] = id;
    return id;
  }

  void AddRoot(ValueId value, ValueId root) {
    std::vector<ValueId>& roots = graph_.roots[value];
    if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
  }

  uint32_t OpsOf(ValueId value) const { return IsInlined(value) ? Definition(value)->ops : 1; }

  // `value` made by an item of its own, so that it can be in a slot.
  ValueId Copied(ValueId value, BlockId block) {
    const auto [at, fresh] = copies_.try_emplace({block, value}, 0);
    if (!fresh) return at->second;
    const auto copy = static_cast<ValueId>(graph_.types.size());
    at->second = copy;
    graph_.types.push_back(TensorType(TypeOf(value)));
    graph_.definitions.push_back(kNoItem);
    graph_.homes.push_back(-1);
    graph_.roots.emplace_back();
    graph_.changing.push_back(false);
    graph_.sources.push_back(copy);
    value_blocks_.push_back(block);
    Node node;
    node.op = Op::kReshape;
    const Item* const copied = Definition(value);  // by whose name it goes
    node.label = copied == nullptr ? "carried" : graph_.LabelOf(copied->node);
    node.operands = {value};
    node.first_result = copy;
    node.results = 1;
    Add(std::move(node), Role::kPointwise, -1, block);
    return copy;
  }

  // `value`, or it copied: what is read from memory, or is a constant.
  ValueId InMemory(ValueId value, BlockId block) {
    if (!IsInlined(value)) return value;
    const Op op = Definition(value)->node.op;
    return op == Op::kInput || op == Op::kConstant ? value : Copied(value, block);
  }
  // The same, dense and no constant. `rows`: or rows of what is so.
  ValueId Dense(ValueId value, BlockId block, bool rows) {
    ValueId whole = value;
    while (rows && IsInlined(whole)) {
      const Node& node = Definition(whole)->node;
      if (node.op != Op::kSlice || !graph_.OffsetOfRows(node)) break;
      whole = node.operands[0];
    }
    if (!IsInlined(whole)) return value;
    const Node& node = Definition(whole)->node;
    const bool dense = node.op == Op::kInput && !node.attributes.Has(A::kStrides);
    return dense ? value : Copied(value, block);
  }

  void AddSink(ValueId value, uint32_t slot, Attributes attributes, int64_t origin, BlockId block,
               const std::vector<OpIndex>& after) {
    Node node;
    node.op = Op::kStore;
    node.operands = {value};
    node.attributes = std::move(attributes);
    node.after = after;
    const ItemId item = Add(std::move(node), Role::kSink, -1, block);
    graph_.items[item].slot = slot;
    graph_.items[item].origin = origin;
  }

  void BuildBlock(size_t begin, size_t end, BlockId block) {
    for (size_t i = begin; i < end; i += graph_.program.nodes[i].body + 1) {
      if (graph_.items.size() > kMaxItems) return;
      Node node = graph_.program.nodes[i];
      if (node.op == Op::kRepeat) {
        BuildRepeat(static_cast<OpIndex>(i), block);
      } else if (const auto whole = stored_parts_.find(static_cast<OpIndex>(i));
                 whole != stored_parts_.end()) {
        if (node.op == Op::kStore) BuildStoredParts(graph_.program.nodes[whole->second], i, block);
      } else if (node.op != Op::kConcatenate || !BuildParts(node, i, block)) {
        BuildOp(std::move(node), i, block);
      }
    }
  }

  void BuildOp(Node node, size_t index, BlockId block) {
    const Role role = RoleOf(node, block);
    const bool from_memory = role == Role::kOpaque || role == Role::kProduct ||
                             node.op == Op::kBarrier || node.op == Op::kKeep;
    uint32_t ops = 1;
    for (const ValueId value : node.operands) ops += OpsOf(value);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      ValueId& value = node.operands[i];
      const bool scales = role == Role::kDequantize && i == 1;
      const bool scalar = role == Role::kOpaque && graph_.Elements(value) == 1;
      const bool reduces = node.op == Op::kReduce || node.op == Op::kArgmax;
      if (node.op == Op::kSend || TakesBytes(node.op)) {
        value = Dense(value, block, /*rows=*/node.op == Op::kSend);
        if (node.op == Op::kDeltaApply && ReadsWhatItWrites(node, value)) {
          value = Copied(value, block);
        }
      } else if ((from_memory && !scalar && !(reduces && graph_.IsSeenMemory(value))) || scales ||
                 (role == Role::kInlined && ops > kMaxInlined)) {
        value = InMemory(value, block);
      }
    }
    if (role == Role::kSink && graph_.Elements(node.operands[0]) != 1 &&
        ReadsWhatItWrites(node, node.operands[0])) {
      node.operands[0] = Copied(node.operands[0], block);
    }
    const ItemId item = Add(std::move(node), role, static_cast<int64_t>(index), block);
    const Node& added = graph_.items[item].node;
    if (added.op != Op::kBarrier) return;
    for (uint32_t i = 0; i < added.results; ++i) {
      const ValueId result = added.first_result + i;
      graph_.sources[result] = graph_.sources[added.operands[i]];
      graph_.roots[result] = graph_.roots[added.operands[i]];
    }
  }

  // Is `value`, an operand of `sink`, an inlined view of the bytes that it writes, but not element
  // by element?
  bool ReadsWhatItWrites(const Node& sink, ValueId value) const {
    const BufferRange to = RangesOf(graph_.program, sink)[0];
    const std::vector<ValueId>& roots = graph_.roots[value];
    return std::any_of(roots.begin(), roots.end(), [&](ValueId root) {
      if (Definition(root) == nullptr) return false;  // a parameter
      const Node& read = Definition(root)->node;
      const BufferRange from = RangesOf(graph_.program, read)[0];
      const bool same = sink.op != Op::kDeltaApply && graph_.sources[value] == root &&
                        read.attributes == sink.attributes;
      return from.buffer == to.buffer && from.begin < to.end && to.begin < from.end && !same;
    });
  }

  Role RoleOf(const Node& node, BlockId block) const {
    const ValueId first = node.operands.empty() ? node.first_result : node.operands[0];
    const bool made = !node.operands.empty() && graph_.IsMadeIn(first, block);
    switch (node.op) {
      case Op::kInput:
      case Op::kConstant:
      case Op::kIota:
      case Op::kSlice:
      case Op::kReverse:
        return Role::kInlined;
      case Op::kRngBits:
        return Role::kPointwise;
      case Op::kReshape:
        return made ? Role::kPointwise : Role::kInlined;
      case Op::kBroadcastInDim:
        return made && SpreadsRows(node, TypeOf(first), TypeOf(node.first_result)) ? Role::kSpread
                                                                                   : Role::kInlined;
      case Op::kReduce:
      case Op::kArgmax:
        return ReducesRows(node, TypeOf(first)) ? Role::kReduction : Role::kOpaque;
      case Op::kQuantizeBlock:
        return Role::kQuantize;
      case Op::kDequantizeBlock:
        return Role::kDequantize;
      case Op::kDotGeneral:
      case Op::kBlockScaledDot:
        return Role::kProduct;
      case Op::kStore:
      case Op::kAccumulate:
        return Role::kSink;
      case Op::kCopy:
      case Op::kDeltaApply:
      case Op::kSend:
      case Op::kRecv:
      case Op::kRepeat:
        return Role::kAlone;
      case Op::kBarrier:
      case Op::kKeep:
        return Role::kNothing;
      default:
        break;
    }
    if (!IsElementwise(node, TypeOf(node.first_result), TypeOf(first))) return Role::kOpaque;
    bool inlined = graph_.Elements(node.first_result) == 1;
    uint32_t ops = 1;
    for (const ValueId value : node.operands) {
      inlined = inlined && !graph_.IsMadeIn(value, block);
      ops += OpsOf(value);
    }
    return inlined && ops <= kMaxInlined ? Role::kInlined : Role::kPointwise;
  }

  // Where the operands of a concatenation go; none if they are not written apart.
  std::vector<Attributes> PartsOf(const Node& node) const {
    const TensorType& whole = TypeOf(node.first_result);
    const auto dimension = static_cast<size_t>(node.attributes.Int(A::kDimension));
    std::vector<Attributes> parts;
    int64_t start = 0;
    for (const ValueId value : node.operands) {
      auto part = PartAttributes(whole, TypeOf(value), dimension, start);
      if (!part) return {};
      parts.push_back(*std::move(part));
      start += TypeOf(value).dims[dimension];
    }
    return parts;
  }

  // Concatenations that are only stored, as a whole: their parts are written where they are stored.
  // Not within a repeat, not where anything else has to do with the buffer or with the order of
  // either op.
  void FindStoredParts() {
    const std::vector<Node>& nodes = graph_.program.nodes;
    std::vector<uint32_t> uses(graph_.types.size()), touched(graph_.program.buffers.size());
    std::vector<bool> ordered(nodes.size());
    std::map<ValueId, OpIndex> wholes;
    for (const Node& node : nodes) {
      for (const ValueId value : node.operands) ++uses[value];
      for (const ValueId value : node.yielded) ++uses[value];
      for (const uint32_t buffer : node.buffers) ++touched[buffer];
      for (const OpIndex other : node.after) ordered[other] = true;
    }
    for (size_t i = 0; i < nodes.size(); i += nodes[i].body + 1) {
      const Node& node = nodes[i];
      const auto free = [&](size_t op) { return nodes[op].after.empty() && !ordered[op]; };
      if (node.op == Op::kConcatenate && uses[node.first_result] == 1 && free(i) &&
          !PartsOf(node).empty()) {
        wholes[node.first_result] = static_cast<OpIndex>(i);
      }
      if (node.op != Op::kStore || node.attributes.Has(A::kStrides) || !free(i)) continue;
      const auto whole = wholes.find(node.operands[0]);
      if (whole == wholes.end() || touched[node.buffers[0]] != 1) continue;
      stored_parts_[whole->second] = whole->second;
      stored_parts_[static_cast<OpIndex>(i)] = whole->second;
    }
  }

  // The store at `index` as stores of the parts of `whole`.
  void BuildStoredParts(const Node& whole, size_t index, BlockId block) {
    const Node& store = graph_.program.nodes[index];
    std::vector<Attributes> parts = PartsOf(whole);
    for (size_t i = 0; i < parts.size(); ++i) {
      Node node;
      node.op = Op::kStore;
      node.label = store.label.empty() ? graph_.LabelOf(whole) : store.label;
      node.operands = {whole.operands[i]};
      node.buffers = store.buffers;
      node.attributes = std::move(parts[i]);
      node.attributes.Set(A::kOffset,
                          node.attributes.Int(A::kOffset) + store.attributes.Int(A::kOffset));
      Add(std::move(node), Role::kSink, static_cast<int64_t>(index), block);
    }
  }

  // A concatenation as writes of its operands into its slot; false if they are not written apart.
  bool BuildParts(const Node& node, size_t index, BlockId block) {
    std::vector<Attributes> parts = PartsOf(node);
    if (parts.empty()) return false;
    const TensorType& whole = TypeOf(node.first_result);
    const uint32_t slot = graph_.AddSlot(whole, graph_.LabelOf(node), block, true);
    std::vector<ItemId> sinks;
    for (size_t i = 0; i < parts.size(); ++i) {
      sinks.push_back(static_cast<ItemId>(graph_.items.size()));
      AddSink(node.operands[i], slot, std::move(parts[i]), static_cast<int64_t>(index), block,
              node.after);
    }
    graph_.homes[node.first_result] = slot;
    const ItemId item = Add(node, Role::kNothing, static_cast<int64_t>(index), block);
    std::vector<ItemId>& before = graph_.items[item].before;
    before.insert(before.end(), sinks.begin(), sinks.end());
    return true;
  }

  void BuildRepeat(OpIndex index, BlockId block) {
    const Node node = graph_.program.nodes[index];
    const auto body = static_cast<BlockId>(graph_.blocks.size());
    const ValueId count = node.first_parameter();
    for (size_t i = 0; i < node.parameters(); ++i) {
      graph_.roots[count + i] = {static_cast<ValueId>(count + i)};
      graph_.changing[count + i] = true;
      value_blocks_[count + i] = body;
    }
    const auto first_sink = static_cast<ItemId>(graph_.items.size());
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const uint32_t slot =
          graph_.AddSlot(TypeOf(node.operands[i]), graph_.LabelOf(node), block, true);
      graph_.homes[count + 1 + i] = graph_.homes[node.first_result + i] = slot;
      AddSink(node.operands[i], slot, {}, index, block, {});
    }
    const auto end_sink = static_cast<ItemId>(graph_.items.size());
    const ItemId repeat = Add(node, Role::kAlone, index, block);
    graph_.items[repeat].body = body;
    for (ItemId sink = first_sink; sink < end_sink; ++sink) {
      graph_.items[repeat].before.push_back(sink);
    }
    graph_.blocks.push_back({repeat, {}});
    graph_.homes[count] = graph_.AddSlot(TypeOf(count), "trip", body, true);
    graph_.items[repeat].count = static_cast<uint32_t>(graph_.homes[count]);
    BuildBlock(size_t{index} + 1, size_t{index} + 1 + node.body, body);
    BuildYields(node, index, body);

    // What it waits for is what anything in it is of.
    std::vector<ValueId>& needs = graph_.items[repeat].node.operands;
    needs.clear();
    for (ItemId i = repeat + 1; i < graph_.items.size(); ++i) {
      for (const ValueId value : graph_.items[i].node.operands) {
        if (value_blocks_[value] < body) needs.push_back(value);
      }
    }
    std::sort(needs.begin(), needs.end());
    needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
  }

  // At the end of a trip: what the next one is given, in its slot. What is of parameters itself is
  // copied first: another of them may be written before it is read.
  void BuildYields(const Node& node, OpIndex index, BlockId body) {
    std::vector<ValueId> yielded = node.yielded;
    const ValueId first = node.first_parameter() + 1;
    for (size_t i = 0; i < yielded.size(); ++i) {
      if (graph_.sources[yielded[i]] == first + i) continue;
      for (const ValueId root : graph_.roots[yielded[i]]) {
        if (root < node.first_parameter() || root >= first + yielded.size()) continue;
        yielded[i] = Copied(yielded[i], body);
        break;
      }
    }
    for (size_t i = 0; i < yielded.size(); ++i) {
      if (graph_.sources[yielded[i]] == first + i) continue;
      const auto sink = static_cast<ItemId>(graph_.items.size());
      AddSink(yielded[i], static_cast<uint32_t>(graph_.homes[first + i]), {}, index, body, {});
      yields_.push_back({static_cast<ValueId>(first + i), sink});
    }
  }

  void FindReaders() {
    readers_.resize(graph_.types.size());
    for (ItemId i = 0; i < graph_.items.size(); ++i) {
      const Item& item = graph_.items[i];
      if (item.role == Role::kInlined || item.role == Role::kNothing || item.body) continue;
      for (const ValueId value : item.node.operands) {
        for (const ValueId root : graph_.roots[value]) {
          std::vector<ItemId>& readers = readers_[root];
          const ItemId reader = graph_.Lifted(i, value_blocks_[root]);
          if (readers.empty() || readers.back() != reader) readers.push_back(reader);
        }
      }
    }
  }

  // What is read where it is needed must not have been written over by then: whoever writes waits
  // for those that stand above it. If some stand below, the value is read at its own place.
  void OrderWrites() {
    for (const auto& [parameter, sink] : yields_) {
      for (const ItemId reader : readers_[parameter]) {
        if (reader != sink) graph_.items[sink].beside.push_back(reader);
      }
    }
    std::vector<std::pair<ItemId, BufferRange>> writes;
    for (ItemId i = 0; i < graph_.items.size(); ++i) {
      for (const BufferRange& range : RangesOfItem(i)) {
        if (range.writes) writes.push_back({i, range});
      }
    }
    const std::vector<bool> awaited = graph_.AwaitedByTransfers();
    std::vector<bool> eager(graph_.types.size());
    for (ItemId i = 0; i < graph_.items.size(); ++i) {
      if (graph_.items[i].node.op != Op::kInput) continue;
      const ValueId value = graph_.items[i].node.first_result;
      const BufferRange read = RangesOfItem(i)[0];
      for (const auto& [writer, written] : writes) {
        if (written.buffer != read.buffer || written.begin >= read.end ||
            read.begin >= written.end) {
          continue;
        }
        graph_.changing[value] = true;
        const ItemId later = graph_.Lifted(writer, graph_.items[i].block);
        if (later == kNoItem || later < i) continue;
        if (awaited[later]) eager[value] = true;  // else transfers would wait for what readers do
        if (awaited[later]) continue;
        for (const ItemId reader : readers_[value]) {
          if (reader < later) {
            graph_.items[later].beside.push_back(reader);
          } else if (reader > later || graph_.items[later].body) {
            eager[value] = true;
          }
        }
      }
      if (eager[value]) graph_.items[i].role = Role::kPointwise;
    }
    for (std::vector<ValueId>& roots : graph_.roots) {
      roots.erase(std::remove_if(roots.begin(), roots.end(), [&](ValueId v) { return eager[v]; }),
                  roots.end());
    }
  }

  std::vector<BufferRange> RangesOfItem(ItemId item) const {
    const Item& one = graph_.items[item];
    if (one.origin < 0 || one.slot || one.node.buffers.empty()) return {};
    return RangesOf(graph_.program, graph_.program.nodes[one.origin]);
  }

  Graph graph_;
  std::map<OpIndex, OpIndex> stored_parts_;  // from such stores and their concatenations to these
  std::vector<ItemId> items_of_ops_;
  std::vector<BlockId> value_blocks_;  // where it is defined
  std::map<std::pair<BlockId, ValueId>, ValueId> copies_;
  std::vector<std::pair<ValueId, ItemId>> yields_;  // of a parameter, what writes it anew
  std::vector<std::vector<ItemId>> readers_;        // by root, in its block
};

}  // namespace

absl::StatusOr<Graph> MakeGraph(const Program& program) { return Builder(program).Run(); }

}  // namespace ferry::compute
