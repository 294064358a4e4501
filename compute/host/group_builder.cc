// SPDX-License-Identifier: Apache-2.0
#include "compute/host/group_builder.h"

#include <algorithm>

#include "base/check.h"

namespace ferry::compute {
namespace {

using A = Attribute;

// Kept dimensions, then reduced ones.
std::vector<size_t> ReductionOrder(const Node& node, const TensorType& type) {
  const auto reduced = node.attributes.Ints(A::kDimensions);
  std::vector<size_t> order;
  for (const bool is_reduced : {false, true}) {
    for (size_t d = 0; d < type.dims.size(); ++d) {
      const bool found =
          std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(d)) != reduced.end();
      if (found == is_reduced) order.push_back(d);
    }
  }
  return order;
}

// What a move makes of its operand's elements.
View ViewOf(const Node& node, const TensorType& from, const TensorType& to) {
  const View source = LinearView(from.dims);
  View view{0, to.dims, std::vector<int64_t>(to.dims.size(), 0)};
  const auto ints = [&](A attribute) { return node.attributes.Ints(attribute); };
  for (size_t d = 0; d < from.dims.size(); ++d) {
    const int64_t stride = source.strides[d];
    switch (node.op) {
      case Op::kBroadcastInDim:
        if (from.dims[d] != 1) view.strides[static_cast<size_t>(ints(A::kDimensions)[d])] = stride;
        break;
      case Op::kTranspose:
        view.strides[d] = source.strides[static_cast<size_t>(ints(A::kPermutation)[d])];
        break;
      case Op::kSlice:
        view.offset += ints(A::kStart)[d] * stride;
        view.strides[d] = stride * (ints(A::kStep).empty() ? 1 : ints(A::kStep)[d]);
        break;
      default: {  // kReverse
        const auto reversed = ints(A::kDimensions);
        const bool is =
            std::find(reversed.begin(), reversed.end(), static_cast<int64_t>(d)) != reversed.end();
        if (is) view.offset += (from.dims[d] - 1) * stride;
        view.strides[d] = is ? -stride : stride;
      }
    }
  }
  return view;
}

View BufferView(const Node& node, const TensorType& type) {
  View view = LinearView(type.dims);
  const auto strides = node.attributes.Ints(A::kStrides);
  if (!strides.empty()) view.strides = {strides.begin(), strides.end()};
  return view;
}

}  // namespace

bool GroupBuilder::ReducesRows(const Node& node, const TensorType& type) {
  const std::vector<size_t> order = ReductionOrder(node, type);
  return std::is_sorted(order.begin(), order.end());
}

uint32_t GroupBuilder::NewRegister() {
  made_.memory.push_back(0);
  return static_cast<uint32_t>(made_.memory.size() - 1);
}

uint32_t GroupBuilder::In(ValueId value) {
  const uint32_t root = planner_.RootOf(value);
  const HostPlanner::Value& from = planner_.values_[root];
  const DType type = planner_.values_[value].type.dtype;
  const uint64_t elements = *ElementsOf(planner_.values_[value].type);
  const bool for_all = elements != group_.elements || from.splat.has_value();
  const auto [at, fresh] = registers_.try_emplace({root, for_all}, 0);
  if (!fresh) return at->second;
  TileOp load;
  load.type = type;
  load.where = from.place;
  load.out = at->second = NewRegister();
  if (from.splat) {
    load.kind = TileOp::Kind::kFill;
    load.code = *from.splat;
  } else if (for_all) {
    load.kind = TileOp::Kind::kLoadScalar;
  } else if (type == DType::kF4E2M1FN) {
    load.kind = TileOp::Kind::kLoad;
    load.view = LinearView({static_cast<int64_t>(elements)});
  } else {
    load.kind = TileOp::Kind::kLink;
  }
  made_.ops.push_back(load);
  return load.out;
}

void GroupBuilder::Result(TileOp op, ValueId value) {
  const HostPlanner::Value& result = planner_.values_[value];
  op.type = result.type.dtype;
  op.out = NewRegister();
  registers_[{value, false}] = op.out;
  TileOp place;
  place.kind = TileOp::Kind::kLink;
  place.type = place.from = op.type;
  place.where = result.place;
  place.out = place.in[0] = op.out;
  place.view = LinearView({static_cast<int64_t>(group_.elements)});
  const bool packed = op.type == DType::kF4E2M1FN;
  // Made where it is to be, unless it is packed there.
  if (result.in_memory && !packed) made_.ops.push_back(place);
  made_.ops.push_back(op);
  if (result.in_memory && packed) {
    place.kind = TileOp::Kind::kStore;
    made_.ops.push_back(place);
  }
}

void GroupBuilder::AddReduce(const Node& node) {
  const HostPlanner::Value& result = planner_.values_[node.first_result];
  if (!result.in_memory) return;
  const TensorType& type = program_.types[node.operands[0]];
  TileOp op;
  op.kind = TileOp::Kind::kReduce;
  op.from = type.dtype;
  op.type = type.dtype == DType::kF16 || type.dtype == DType::kBF16 ? DType::kF32 : type.dtype;
  if (node.attributes.Has(A::kAccumulate)) {
    op.type = static_cast<DType>(node.attributes.Int(A::kAccumulate));
  }
  op.kernel = ConvertKernelOf(op.from, op.type);
  op.reduction = static_cast<Reduction>(node.attributes.Int(A::kReduction));
  op.where = result.place;
  op.view = LinearView(result.type.dims);
  const HostPlanner::Value& root = planner_.values_[planner_.RootOf(node.operands[0])];
  if (root.splat || ReducesRows(node, type)) {
    op.in[0] = In(node.operands[0]);
  } else {
    const View linear = LinearView(type.dims);
    TileOp load;
    load.kind = TileOp::Kind::kLoad;
    load.type = type.dtype;
    load.where = root.place;
    for (const size_t d : ReductionOrder(node, type)) {
      load.view.dims.push_back(linear.dims[d]);
      load.view.strides.push_back(linear.strides[d]);
    }
    load.out = op.in[0] = NewRegister();
    made_.ops.push_back(load);
  }
  made_.ops.push_back(op);
}

void GroupBuilder::AddMember(const HostPlanner::Member& member) {
  TileOp op;
  if (member.op == HostPlanner::kNone) {
    const HostPlanner::Value& value = planner_.values_[member.result];
    op.kind = TileOp::Kind::kFill;
    op.type = op.from = value.type.dtype;
    op.code = member.code;
    op.out = op.in[0] = NewRegister();
    made_.ops.push_back(op);
    op.kind = TileOp::Kind::kStore;
    op.where = value.place;
    op.view = LinearView(value.type.dims);
    made_.ops.push_back(op);
    return;
  }
  const Node& node = program_.nodes[member.op];
  const auto int_of = [&](A attribute) { return node.attributes.Int(attribute); };
  const TensorType* first = node.operands.empty() ? nullptr : &program_.types[node.operands[0]];
  const auto buffer = [&] {
    op.where = {Location::Kind::kBuffer, node.buffers[0],
                static_cast<uint64_t>(int_of(A::kOffset))};
    op.view = BufferView(node, first != nullptr ? *first : program_.types[node.first_result]);
  };
  if (first != nullptr) op.from = first->dtype;
  switch (node.op) {
    case Op::kReduce:
      return AddReduce(node);
    case Op::kInput:
      op.kind = TileOp::Kind::kLoad;
      buffer();
      return Result(op, node.first_result);
    case Op::kStore:
    case Op::kAccumulate:
      op.kind = node.op == Op::kStore ? TileOp::Kind::kStore : TileOp::Kind::kAccumulate;
      if (node.op == Op::kAccumulate) op.kernel = KernelOf(Op::kAdd, op.from);
      buffer();
      op.in[0] = In(node.operands[0]);
      made_.ops.push_back(op);
      return;
    case Op::kBroadcastInDim:
    case Op::kTranspose:
    case Op::kSlice:
    case Op::kReverse:
      op.kind = TileOp::Kind::kLoad;
      op.where = planner_.values_[planner_.RootOf(node.operands[0])].place;
      op.view = ViewOf(node, *first, program_.types[node.first_result]);
      return Result(op, node.first_result);
    case Op::kIota:
      op.kind = TileOp::Kind::kIota;
      op.view = LinearView(program_.types[node.first_result].dims);
      op.dimension = static_cast<size_t>(int_of(A::kDimension));
      return Result(op, node.first_result);
    case Op::kConvert:
      op.kind = TileOp::Kind::kConvert;
      op.kernel = ConvertKernelOf(op.from, program_.types[node.first_result].dtype);
      op.mode = {static_cast<Overflow>(int_of(A::kMode)),
                 static_cast<ScaleRounding>(int_of(A::kRounding))};
      break;
    case Op::kCompare:
      op.kernel = CompareKernelOf(static_cast<Direction>(int_of(A::kDirection)),
                                  int_of(A::kTotalOrder) != 0, op.from);
      break;
    case Op::kSelect:
      op.kernel = SelectKernelOf(TileBytesOf(program_.types[node.first_result].dtype));
      break;
    default:
      op.kernel = KernelOf(node.op, op.from);
  }
  FERRY_CHECK(op.kernel != nullptr || op.kind == TileOp::Kind::kConvert);
  for (size_t i = 0; i < node.operands.size(); ++i) op.in[i] = In(node.operands[i]);
  Result(op, node.first_result);
}

void GroupBuilder::ShareMemory() {
  const auto is_first = [](const TileOp& op) {
    return op.kind == TileOp::Kind::kFill || op.kind == TileOp::Kind::kLoadScalar;
  };
  const auto reads = [](const TileOp& op) {
    return op.kind == TileOp::Kind::kKernel || op.kind == TileOp::Kind::kConvert ||
           op.kind == TileOp::Kind::kStore || op.kind == TileOp::Kind::kAccumulate ||
           op.kind == TileOp::Kind::kReduce;
  };
  const auto writes = [](const TileOp& op) {
    return op.kind == TileOp::Kind::kKernel || op.kind == TileOp::Kind::kConvert ||
           op.kind == TileOp::Kind::kLoad || op.kind == TileOp::Kind::kIota;
  };
  constexpr size_t kNever = std::numeric_limits<size_t>::max();
  std::vector<bool> linked(made_.memory.size());
  std::vector<size_t> last(made_.memory.size(), 0);
  for (size_t i = 0; i < made_.ops.size(); ++i) {
    const TileOp& op = made_.ops[i];
    if (op.kind == TileOp::Kind::kLink) linked[op.out] = true;
    if (writes(op)) last[op.out] = std::max(last[op.out], i);
    if (!reads(op)) continue;
    for (const uint32_t in : op.in) last[in] = std::max(last[in], i);
  }
  // Those that are filled before the first tile keep theirs.
  for (const TileOp& op : made_.ops) {
    if (!is_first(op)) continue;
    made_.memory[op.out] = made_.memories++;
    last[op.out] = kNever;
  }
  std::vector<uint32_t> unused;
  std::vector<uint32_t> live;
  for (size_t i = 0; i < made_.ops.size(); ++i) {
    const TileOp& op = made_.ops[i];
    if (writes(op) && !linked[op.out]) {
      if (unused.empty()) unused.push_back(made_.memories++);
      made_.memory[op.out] = unused.back();
      unused.pop_back();
      live.push_back(op.out);
    }
    for (size_t j = 0; j < live.size();) {
      if (last[live[j]] > i) {
        ++j;
        continue;
      }
      unused.push_back(made_.memory[live[j]]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
  for (size_t i = 0; i < linked.size(); ++i) {
    if (linked[i]) made_.memory[i] = TileGroup::kNoMemory;
  }
}

TileGroup GroupBuilder::Build() {
  made_.elements = group_.elements;
  made_.row = group_.elements == 0 ? 0 : group_.row;
  for (const HostPlanner::Member& member : group_.members) AddMember(member);
  ShareMemory();
  return std::move(made_);
}

}  // namespace ferry::compute
