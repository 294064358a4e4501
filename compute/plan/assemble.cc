// SPDX-License-Identifier: Apache-2.0
// From the last step to the first: when a step is made it is known who reads what it makes.
#include "compute/plan/assemble.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ferry::compute {
namespace {

constexpr size_t kMaxLabelBytes = 60;

uint64_t AlignedBytes(const TensorType& type) {
  return (*BytesOf(type) + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

}  // namespace

// The program of one step.
class Assembler::Kernel {
 public:
  Kernel(Assembler& assembler, const Partition& partition, const Fusion& fusion, Step& step)
      : assembler_(assembler),
        graph_(assembler.graph_),
        partition_(partition),
        fusion_(fusion),
        block_(graph_.items[fusion.items[0]].block),
        step_(step) {
    step_.program.numerics = graph_.program.numerics;
  }

  // `item`: that needs it, as operand `index`.
  ValueId Emit(ValueId operand, ItemId item, size_t index) {
    const ValueId value = graph_.sources[operand];
    const ItemId definition = graph_.definitions[value];
    if (definition != kNoItem) {
      const bool mine = std::binary_search(fusion_.items.begin(), fusion_.items.end(), definition);
      const Item& made_by = graph_.items[definition];
      const bool again = IsClustered(made_by.role) && made_by.block == block_ &&
                         partition_.IsDuplicated(definition);
      if (made_by.role == Role::kInlined || mine || again) {
        if (values_.count(value) == 0) EmitItem(definition);
        return values_[value];
      }
    }
    const uint32_t slot = assembler_.SlotOf(value);
    const bool mine = std::binary_search(fusion_.items.begin(), fusion_.items.end(), item);
    reads_[slot].insert(mine ? partition_.OperandLevel(item, index) : Level::kMemory);
    Node node;
    node.op = Op::kInput;
    return EmitInput(std::move(node), {true, slot}, graph_.types[value], -1);
  }

  void EmitItem(ItemId id) {
    const Item& item = graph_.items[id];
    Node node = item.node;
    node.after.clear();
    if (node.op == Op::kInput) {
      values_[node.first_result] =
          EmitInput(node, {false, node.buffers[0]}, graph_.types[node.first_result], item.origin);
      return;
    }
    for (size_t i = 0; i < node.operands.size(); ++i) {
      node.operands[i] = Emit(item.node.operands[i], id, i);
    }
    std::vector<TensorType> types;
    for (uint32_t i = 0; i < item.node.results; ++i) {
      types.push_back(graph_.types[item.node.first_result + i]);
    }
    const OpIndex op = Append(std::move(node), std::move(types), item.origin);
    for (uint32_t i = 0; i < item.node.results; ++i) {
      values_[item.node.first_result + i] = step_.program.Result(op, i);
    }
  }

  // What is sent is one input, of the rows that are sent (Graph::OffsetOfRows).
  void EmitSend(ItemId id) {
    const Item& item = graph_.items[id];
    ValueId value = graph_.sources[item.node.operands[0]];
    uint64_t offset = 0;
    const Item* input = nullptr;
    while (graph_.definitions[value] != kNoItem) {
      const Item& made_by = graph_.items[graph_.definitions[value]];
      if (made_by.role != Role::kInlined) break;
      if (made_by.node.op == Op::kInput) {
        input = &made_by;
        break;
      }
      offset += *graph_.OffsetOfRows(made_by.node);
      value = graph_.sources[made_by.node.operands[0]];
    }
    Node read;
    read.op = Op::kInput;
    Binding from;
    if (input != nullptr) {
      read = input->node;
      from = {false, read.buffers[0]};
      offset += static_cast<uint64_t>(read.attributes.Int(Attribute::kOffset));
    } else {
      from = {true, assembler_.SlotOf(value)};
      reads_[from.index].insert(Level::kMemory);
    }
    read.attributes.Set(Attribute::kOffset, static_cast<int64_t>(offset));
    Node node = item.node;
    node.after.clear();
    const TensorType& type = graph_.types[item.node.operands[0]];
    node.operands = {EmitInput(std::move(read), from, type, input == nullptr ? -1 : input->origin)};
    Append(std::move(node), {}, item.origin);
  }

  // Writes the operand of `node`, a store or an accumulate, where `binding` says.
  void Write(Node node, ValueId value, Binding binding, int64_t origin) {
    node.operands = {value};
    node.after.clear();
    const uint32_t buffer = BufferOf(binding);
    node.buffers = {buffer};
    Buffer& bound = step_.program.buffers[buffer];
    const bool is_read = bound.access == Access::kRead;
    bound.access = is_read || node.op == Op::kAccumulate || bound.access == Access::kReadWrite
                       ? Access::kReadWrite
                       : Access::kWrite;
    // Apart from each other or element by element, but Verify does not know.
    for (OpIndex i = 0; i < step_.program.nodes.size(); ++i) {
      const Node& other = step_.program.nodes[i];
      if (other.buffers.empty() || other.buffers[0] != buffer) continue;
      node.after.push_back(i);
      bound.donated = bound.donated || other.op == Op::kInput;
    }
    Append(std::move(node), {}, origin);
  }

  void EmitCopy(const Item& item) {
    Node node = item.node;
    node.after.clear();
    node.buffers[0] = BufferOf({false, node.buffers[0]});
    step_.program.buffers[node.buffers[0]].access = Access::kWrite;
    node.buffers[1] = BufferOf({false, node.buffers[1]});
    Access& from = step_.program.buffers[node.buffers[1]].access;
    from = node.buffers[0] == node.buffers[1] ? Access::kReadWrite : Access::kRead;
    Append(std::move(node), {}, item.origin);
  }

  void EmitDeltaApply(ItemId id) {
    Node node = graph_.items[id].node;
    node.after.clear();
    for (size_t i = 0; i < node.operands.size(); ++i) {
      node.operands[i] = Emit(node.operands[i], id, i);
    }
    node.buffers[0] = BufferOf({false, node.buffers[0]});
    step_.program.buffers[node.buffers[0]].access = Access::kReadWrite;
    Append(std::move(node), {}, graph_.items[id].origin);
  }

  // Slots that a value of `level` may be written over, element by element.
  std::vector<uint32_t> MayBeOver(Level level, const TensorType& type) const {
    std::vector<uint32_t> slots;
    for (const auto& [slot, levels] : reads_) {
      const TensorType& other = graph_.slots[slot].type;
      if (levels == std::set<Level>{level} && level != Level::kMemory &&
          ElementsOf(other) == ElementsOf(type) && BytesOf(other) == BytesOf(type)) {
        slots.push_back(slot);
      }
    }
    return slots;
  }

  // Labels, or the last op that is more than reading and writing, or else where it writes.
  std::string Label() const {
    std::vector<std::string> labels;
    std::string name;
    std::string written;
    size_t bytes = 0;
    for (const Node& node : step_.program.nodes) {
      if (node.op == Op::kStore) {
        const Binding to = step_.bindings[node.buffers[0]];
        written = to.slot ? graph_.slots[to.index].label
                          : absl::StrCat("store @", graph_.program.buffers[to.index].name);
      } else if (node.op != Op::kInput) {
        name = std::string(InfoOf(node.op).name);
      }
      if (node.label.empty() || bytes > kMaxLabelBytes ||
          std::find(labels.begin(), labels.end(), node.label) != labels.end()) {
        continue;
      }
      bytes += node.label.size();
      labels.push_back(bytes > kMaxLabelBytes && !labels.empty() ? "..." : node.label);
    }
    if (labels.empty()) return name.empty() ? written : name;
    return absl::StrJoin(labels, "+");
  }

  // Factors that are made on the way, and the product if more than writing follows it.
  uint64_t ScratchBytes() const {
    const Program& program = step_.program;
    const std::vector<OpIndex> definitions = DefinitionsOf(program);
    uint64_t bytes = 0;
    const auto is_product = [](const Node& node) {
      return node.op == Op::kDotGeneral || node.op == Op::kBlockScaledDot;
    };
    const auto product = std::find_if(program.nodes.begin(), program.nodes.end(), is_product);
    for (const ValueId value :
         std::set<ValueId>(product->operands.begin(), product->operands.end())) {
      const Op made_by = program.nodes[definitions[value]].op;
      if (made_by != Op::kInput && made_by != Op::kConstant) {
        bytes += AlignedBytes(program.types[value]);
      }
    }
    const bool more = std::any_of(product, program.nodes.end(), [&](const Node& node) {
      return node.op != Op::kStore && std::find(node.operands.begin(), node.operands.end(),
                                                product->first_result) != node.operands.end();
    });
    if (more) bytes += AlignedBytes(program.types[product->first_result]);
    return bytes;
  }

 private:
  uint32_t BufferOf(Binding binding) {
    const auto at = std::find(step_.bindings.begin(), step_.bindings.end(), binding);
    const auto index = static_cast<uint32_t>(at - step_.bindings.begin());
    if (at != step_.bindings.end()) return index;
    step_.bindings.push_back(binding);
    Buffer buffer;
    buffer.name = absl::StrCat("b", index);
    buffer.access = Access::kWrite;
    buffer.bytes = binding.slot ? *BytesOf(graph_.slots[binding.index].type)
                                : graph_.program.buffers[binding.index].bytes;
    step_.program.buffers.push_back(std::move(buffer));
    return index;
  }

  OpIndex Append(Node node, std::vector<TensorType> types, int64_t origin) {
    step_.origins.push_back(origin);
    return step_.program.Append(std::move(node), std::move(types));
  }

  // The same is read once.
  ValueId EmitInput(Node node, Binding binding, const TensorType& type, int64_t origin) {
    node.buffers = {BufferOf(binding)};
    node.after.clear();
    for (const Node& other : step_.program.nodes) {
      if (other.op == Op::kInput && other.buffers == node.buffers &&
          other.attributes == node.attributes && step_.program.types[other.first_result] == type) {
        return other.first_result;
      }
    }
    step_.program.buffers[node.buffers[0]].access = Access::kRead;
    return step_.program.Result(Append(std::move(node), {type}, origin));
  }

  Assembler& assembler_;
  Graph& graph_;
  const Partition& partition_;
  const Fusion& fusion_;
  const BlockId block_;
  Step& step_;
  std::map<ValueId, ValueId> values_;          // by value of the graph
  std::map<uint32_t, std::set<Level>> reads_;  // by slot
};

Assembler::Assembler(Graph& graph) : graph_(graph), wanted_(graph.types.size()) {
  for (BlockId block = 0; block < graph.blocks.size(); ++block) {
    partitions_.push_back(std::make_unique<Partition>(graph, block));
  }
  in_place_.resize(graph.slots.size());
  for (const Item& item : graph.items) {
    if (item.node.op != Op::kKeep) continue;
    for (const ValueId value : item.node.operands) wanted_[graph.sources[value]] = true;
  }
}

uint32_t Assembler::SlotOf(ValueId value) {
  wanted_[value] = true;
  if (graph_.homes[value] < 0) {
    const Item& item = graph_.items[graph_.definitions[value]];
    graph_.homes[value] =
        graph_.AddSlot(graph_.types[value], graph_.LabelOf(item.node), item.block, false);
    in_place_.emplace_back();
  }
  return static_cast<uint32_t>(graph_.homes[value]);
}

bool Assembler::Make(const Partition& partition, const Fusion& fusion, Step& step) {
  Kernel kernel(*this, partition, fusion, step);
  const Item& first = graph_.items[fusion.items[0]];
  const Node& node = first.node;
  if (first.body) {
    step.kind = StepKind::kRepeat;
    step.label = node.label.empty() ? "repeat" : node.label;
    step.trips = node.attributes.Int(Attribute::kTrips);
    step.steps = Steps(*first.body);
    step.origins = {first.origin};
    const auto count = graph_.program.nodes[first.origin].first_parameter();
    if (wanted_[count]) step.count = first.count;
    return true;
  }
  if (node.op == Op::kCopy || node.op == Op::kDeltaApply) {
    step.kind = node.op == Op::kCopy ? StepKind::kCopy : StepKind::kKernel;
    node.op == Op::kCopy ? kernel.EmitCopy(first) : kernel.EmitDeltaApply(fusion.items[0]);
  } else if (node.op == Op::kSend) {
    step.kind = StepKind::kSend;
    kernel.EmitSend(fusion.items[0]);
  } else {
    step.kind = node.op == Op::kRecv ? StepKind::kRecv : StepKind::kKernel;
    if (fusion.product != kNoItem) step.kind = StepKind::kProduct;
    struct Output {
      Node node;
      ValueId value = 0;
      Binding binding;
      int64_t origin = -1;
    };
    std::vector<Output> outputs;
    std::vector<std::pair<uint32_t, Level>> made;
    for (const ItemId id : fusion.items) {
      const Item& item = graph_.items[id];
      if (item.role == Role::kSink) {
        const Binding binding =
            item.slot ? Binding{true, *item.slot} : Binding{false, item.node.buffers[0]};
        outputs.push_back(
            {item.node, kernel.Emit(item.node.operands[0], id, 0), binding, item.origin});
        continue;
      }
      for (uint32_t i = 0; i < item.node.results; ++i) {
        const ValueId value = item.node.first_result + i;
        if (!wanted_[value] && step.kind != StepKind::kRecv) continue;
        const uint32_t slot = SlotOf(value);
        Node store;
        store.op = Op::kStore;
        outputs.push_back({std::move(store), kernel.Emit(value, id, 0), {true, slot}, -1});
        if (step.kind == StepKind::kKernel && !fusion.opaque) {
          made.push_back({slot, partition.ResultLevel(value)});
        }
      }
    }
    if (outputs.empty()) return false;
    for (Output& output : outputs) {
      kernel.Write(std::move(output.node), output.value, output.binding, output.origin);
    }
    for (const auto& [slot, level] : made) {
      in_place_[slot] = kernel.MayBeOver(level, graph_.slots[slot].type);
    }
  }
  step.label = kernel.Label();
  if (const uint64_t bytes = step.kind == StepKind::kProduct ? kernel.ScratchBytes() : 0;
      bytes > 0) {
    step.scratch = graph_.AddSlot({DType::kU8, {static_cast<int64_t>(bytes)}},
                                  absl::StrCat("scratch of ", step.label), first.block, false);
    in_place_.emplace_back();
  }
  return true;
}

std::vector<Step> Assembler::Steps(BlockId block) {
  const Partition& partition = *partitions_[block];
  const std::vector<Fusion>& fusions = partition.fusions();
  std::vector<Step> made(fusions.size());
  std::vector<bool> there(fusions.size());
  for (size_t i = fusions.size(); i > 0; --i) {
    there[i - 1] = Make(partition, fusions[i - 1], made[i - 1]);
  }
  std::vector<Step> steps;
  std::vector<std::set<uint32_t>> stands_for(fusions.size());  // itself, or what it is after
  for (size_t i = 0; i < fusions.size(); ++i) {
    std::set<uint32_t> after;
    for (const uint32_t other : fusions[i].after) {
      after.insert(stands_for[other].begin(), stands_for[other].end());
    }
    if (!there[i]) {
      stands_for[i] = std::move(after);
      continue;
    }
    stands_for[i] = {static_cast<uint32_t>(steps.size())};
    made[i].after.assign(after.begin(), after.end());
    steps.push_back(std::move(made[i]));
  }
  return steps;
}

}  // namespace ferry::compute
