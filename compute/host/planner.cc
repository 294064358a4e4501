// SPDX-License-Identifier: Apache-2.0
#include "compute/host/planner.h"

#include <algorithm>
#include <cstring>

#include "compute/host/group_builder.h"
#include "compute/host/whole_ops.h"
#include "compute/passes/memory_plan.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr size_t kMostMembers = 256;  // of a group, so that its registers are not too many

bool IsView(Op op) {
  return op == Op::kBroadcastInDim || op == Op::kTranspose || op == Op::kSlice ||
         op == Op::kReverse;
}

uint64_t RowOf(const Node& node, const TensorType& type) {
  uint64_t row = 1;
  for (const int64_t d : node.attributes.Ints(A::kDimensions)) {
    row *= static_cast<uint64_t>(type.dims[static_cast<size_t>(d)]);
  }
  return row;
}

bool Overlap(const BufferRange& a, const BufferRange& b) {
  return a.buffer == b.buffer && std::max(a.begin, b.begin) < std::min(a.end, b.end);
}

}  // namespace

HostPlanner::HostPlanner(HostProgram& made) : made_(made), program_(made.program_) {
  for (size_t i = 0; i < program_.types.size(); ++i) {
    values_.push_back({program_.types[i], static_cast<uint32_t>(i)});
  }
}

void HostPlanner::Plan() {
  AddBlock(0, program_.nodes.size());
  PlanArena();
  for (Group& group : groups_) {
    made_.groups_.push_back(GroupBuilder(*this, group).Build());
  }
}

size_t HostPlanner::AddStep(Step::Kind kind, size_t index) {
  made_.steps_.push_back({kind, index});
  step_values_.emplace_back();
  return made_.steps_.size() - 1;
}

uint32_t HostPlanner::NewValue(TensorType type, size_t step) {
  const auto id = static_cast<uint32_t>(values_.size());
  values_.push_back({std::move(type), id});
  values_[id].in_memory = true;
  values_[id].first = values_[id].last = static_cast<uint32_t>(step);
  return id;
}

uint32_t HostPlanner::OpenGroup(uint64_t elements, uint64_t row) {
  open_ = static_cast<uint32_t>(groups_.size());
  groups_.push_back({elements, row, AddStep(Step::Kind::kGroup, open_)});
  return open_;
}

uint32_t HostPlanner::InMemory(ValueId value) {
  uint32_t root = RootOf(value);
  if (values_[root].splat) {
    const TensorType type = values_[value].type;
    OpenGroup(*ElementsOf(type), 0);
    const uint32_t filled = NewValue(type, groups_[open_].step);
    groups_[open_].members.push_back({kNone, filled, *values_[root].splat});
    CloseGroup();
    root = filled;
  }
  values_[root].in_memory = true;
  values_[root].last = std::max(values_[root].last, static_cast<uint32_t>(made_.steps_.size()));
  return root;
}

void HostPlanner::AddBlock(size_t begin, size_t end) {
  for (size_t i = begin; i < end; i += 1 + program_.nodes[i].body) {
    AddOp(static_cast<OpIndex>(i));
  }
}

void HostPlanner::AddOp(OpIndex index) {
  const Node& node = program_.nodes[index];
  if (node.op == Op::kRepeat) {
    AddRepeat(index);
  } else if (node.op == Op::kCopy) {
    CloseGroup();
    Step& step = made_.steps_[AddStep(Step::Kind::kCopy, index)];
    const std::vector<BufferRange> ranges = RangesOf(program_, node);
    step.out = {{Location::Kind::kBuffer, ranges[0].buffer, ranges[0].begin}};
    step.in = {{Location::Kind::kBuffer, ranges[1].buffer, ranges[1].begin}};
    step.bytes = {ranges[0].end - ranges[0].begin};
  } else if (IsWholeOp(node.op)) {
    AddWhole(index);
  } else if (!AddAlias(node)) {
    AddMember(index);
  }
}

void HostPlanner::AddWhole(OpIndex index) {
  const Node& node = program_.nodes[index];
  CloseGroup();
  StepValues values;
  for (const ValueId value : node.operands) values.in.push_back(InMemory(value));
  const size_t step = AddStep(Step::Kind::kWhole, index);
  WholeOp op{node, {}, {}};
  for (const ValueId value : node.operands) op.in_types.push_back(program_.types[value]);
  for (uint32_t i = 0; i < node.results; ++i) {
    Value& value = values_[node.first_result + i];
    op.out_types.push_back(value.type);
    value.in_memory = true;
    value.first = value.last = static_cast<uint32_t>(step);
    values.out.push_back(node.first_result + i);
  }
  values.scratch = ScratchBytesOf(op);
  // Filled operands have been made by steps of their own: all are needed up to this one.
  for (const uint32_t root : values.in) {
    values_[root].last = std::max(values_[root].last, static_cast<uint32_t>(step));
  }
  step_values_[step] = std::move(values);
}

void HostPlanner::AddRepeat(OpIndex index) {
  const Node& node = program_.nodes[index];
  CloseGroup();
  StepValues values;
  for (const ValueId value : node.operands) values.in.push_back(InMemory(value));
  const size_t step = AddStep(Step::Kind::kRepeat, index);
  for (uint32_t i = 0; i < node.parameters(); ++i) {
    Value& parameter = values_[node.first_parameter() + i];
    parameter.in_memory = true;
    parameter.first = static_cast<uint32_t>(step);
    values.out.push_back(node.first_parameter() + i);
    if (i == 0) continue;
    values_[node.first_result + i - 1].root = node.first_parameter() + i;
    made_.steps_[step].bytes.push_back(*BytesOf(parameter.type));
  }
  for (const uint32_t root : values.in) {
    values_[root].last = std::max(values_[root].last, static_cast<uint32_t>(step));
  }
  step_values_[step] = std::move(values);
  AddBlock(index + 1, index + 1 + node.body);
  CloseGroup();
  StepValues ending;
  for (const ValueId value : node.yielded) ending.in.push_back(InMemory(value));
  const size_t end = AddStep(Step::Kind::kEnd, index);
  for (const ValueId value : node.yielded) {
    ending.between.push_back(NewValue(values_[value].type, end));
  }
  for (const uint32_t root : ending.in) {
    values_[root].last = std::max(values_[root].last, static_cast<uint32_t>(end));
  }
  for (uint32_t i = 0; i < node.parameters(); ++i) {
    values_[node.first_parameter() + i].last = static_cast<uint32_t>(end);
  }
  step_values_[end] = std::move(ending);
  made_.steps_[step].end = end;
  repeats_.push_back({step, end});
}

bool HostPlanner::IsOverwritten(const BufferRange& range) const {
  if (!program_.buffers[range.buffer].donated) return false;
  return std::any_of(program_.nodes.begin(), program_.nodes.end(), [&](const Node& node) {
    const std::vector<BufferRange> others = RangesOf(program_, node);
    return std::any_of(others.begin(), others.end(), [&](const BufferRange& other) {
      return other.writes && Overlap(other, range);
    });
  });
}

bool HostPlanner::AddConstant(const Node& node) {
  Value& value = values_[node.first_result];
  const bool splat = node.attributes.Has(A::kSplat);
  const absl::string_view bytes = node.attributes.Bytes(splat ? A::kSplat : A::kValues);
  if (splat) {
    uint64_t code = 0;
    std::memcpy(&code, bytes.data(), bytes.size());
    value.splat = code;
  } else {
    value.place = {Location::Kind::kConstant, 0, made_.constants_.size()};
    for (const char byte : bytes) made_.constants_.push_back(static_cast<std::byte>(byte));
  }
  return true;
}

bool HostPlanner::AddAlias(const Node& node) {
  const auto stand_for = [&](uint32_t result, ValueId operand) {
    values_[node.first_result + result].root = RootOf(operand);
  };
  switch (node.op) {
    case Op::kConstant:
      return AddConstant(node);
    case Op::kKeep:
      return true;
    case Op::kReshape:
    case Op::kBarrier:
      for (uint32_t i = 0; i < node.results; ++i) stand_for(i, node.operands[i]);
      return true;
    case Op::kBitcastConvert: {
      const DType from = program_.types[node.operands[0]].dtype;
      const DType to = program_.types[node.first_result].dtype;
      if (InfoOf(from).bits == InfoOf(to).bits) {
        stand_for(0, node.operands[0]);
      } else {  // the bytes in memory, of which registers have as many an element as before
        CloseGroup();
        values_[node.first_result].root = InMemory(node.operands[0]);
      }
      return true;
    }
    case Op::kBroadcastInDim:
    case Op::kTranspose:
    case Op::kSlice:
    case Op::kReverse:
      if (!values_[RootOf(node.operands[0])].splat) return false;
      stand_for(0, node.operands[0]);
      return true;
    case Op::kInput: {
      const BufferRange range = RangesOf(program_, node)[0];
      const bool strided = !node.attributes.Ints(A::kStrides).empty();
      const bool is_bool = program_.types[node.first_result].dtype == DType::kBool;
      if (strided || is_bool || IsOverwritten(range)) return false;
      if (open_ != kNone) {
        const auto& touches = groups_[open_].touches;
        const bool written = std::any_of(touches.begin(), touches.end(), [&](const Touch& touch) {
          return touch.range.writes && Overlap(touch.range, range);
        });
        if (written) CloseGroup();
      }
      values_[node.first_result].place = {Location::Kind::kBuffer, range.buffer, range.begin};
      return true;
    }
    default:
      return false;
  }
}

bool HostPlanner::Fits(const Node& node, uint64_t elements, uint64_t row,
                       const Touch* touch) const {
  if (open_ == kNone) return false;
  const Group& group = groups_[open_];
  if (group.elements != elements || group.members.size() >= kMostMembers ||
      (row != 0 && group.row != 0 && group.row != row)) {
    return false;
  }
  const bool moves =
      IsView(node.op) ||
      (node.op == Op::kReduce && !GroupBuilder::ReducesRows(node, values_[node.operands[0]].type));
  for (const ValueId value : node.operands) {
    const Value& root = values_[RootOf(value)];
    if (root.group == open_ && (moves || !root.in_registers)) return false;
  }
  return touch == nullptr ||
         std::none_of(group.touches.begin(), group.touches.end(), [&](const Touch& other) {
           const bool same = touch->dense && other.dense && touch->type == other.type &&
                             InfoOf(other.type).bits >= 8 &&
                             touch->range.begin == other.range.begin &&
                             touch->range.end == other.range.end;
           return Overlap(touch->range, other.range) &&
                  (touch->range.writes || other.range.writes) && !same;
         });
}

void HostPlanner::AddMember(OpIndex index) {
  const Node& node = program_.nodes[index];
  const bool by_operand =
      node.op == Op::kStore || node.op == Op::kAccumulate || node.op == Op::kReduce;
  const TensorType& type =
      by_operand ? program_.types[node.operands[0]] : program_.types[node.first_result];
  const uint64_t elements = *ElementsOf(type);
  const uint64_t row = node.op == Op::kReduce ? RowOf(node, type) : 0;
  std::optional<Touch> touch;
  if (!node.buffers.empty()) {
    touch = {RangesOf(program_, node)[0], type.dtype, node.attributes.Ints(A::kStrides).empty()};
  }
  if (!Fits(node, elements, row, touch ? &*touch : nullptr)) OpenGroup(elements, row);
  Group& group = groups_[open_];
  group.members.push_back({index});
  if (touch) group.touches.push_back(*touch);
  if (row != 0) group.row = row;
  for (const ValueId value : node.operands) {
    Value& root = values_[RootOf(value)];
    if (root.splat || (root.group == open_ && root.in_registers)) continue;
    root.in_memory = true;
    root.last = std::max(root.last, static_cast<uint32_t>(group.step));
  }
  if (node.results == 0) return;
  Value& result = values_[node.first_result];
  result.group = open_;
  result.in_registers = node.op != Op::kReduce;
  result.first = result.last = static_cast<uint32_t>(group.step);
}

void HostPlanner::PlanArena() {
  // What a body is given from around it is needed until its last trip.
  for (Value& value : values_) {
    for (const auto& [begin, end] : repeats_) {  // inner ones first
      if (value.first < begin && value.last > begin && value.last < end) {
        value.last = static_cast<uint32_t>(end);
      }
    }
  }
  for (Group& group : groups_) {
    step_values_[group.step].scratch = GroupBuilder(*this, group).Build().ScratchBytes();
  }
  std::vector<Allocation> allocations;
  std::vector<Location*> places;
  for (Value& value : values_) {
    const uint32_t id = static_cast<uint32_t>(&value - values_.data());
    if (value.root != id || !value.in_memory || value.place.kind != Location::Kind::kNone) continue;
    value.place.kind = Location::Kind::kArena;
    allocations.push_back({*BytesOf(value.type), value.first, value.last});
    places.push_back(&value.place);
  }
  for (size_t i = 0; i < step_values_.size(); ++i) {
    made_.steps_[i].scratch.kind = Location::Kind::kArena;
    const auto step = static_cast<uint32_t>(i);
    allocations.push_back({step_values_[i].scratch, step, step});
    places.push_back(&made_.steps_[i].scratch);
  }
  const MemoryPlan plan = PlanMemory(allocations);
  for (size_t i = 0; i < places.size(); ++i) places[i]->offset = plan.offsets[i];
  made_.arena_bytes_ = plan.bytes;
  for (size_t i = 0; i < step_values_.size(); ++i) {
    const auto add = [&](const std::vector<uint32_t>& roots, std::vector<Location>& to) {
      for (const uint32_t root : roots) to.push_back(values_[root].place);
    };
    add(step_values_[i].in, made_.steps_[i].in);
    add(step_values_[i].out, made_.steps_[i].out);
    add(step_values_[i].between, made_.steps_[i].yielded);
  }
}

}  // namespace ferry::compute
