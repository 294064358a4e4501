// SPDX-License-Identifier: Apache-2.0
#include "compute/host/fusion_builder.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "compute/host/chain_builder.h"
#include "compute/passes/literal.h"
#include "compute/plan/kernel_loop.h"

namespace ferry::compute {
namespace {

using A = Attribute;

}  // namespace

FusionBuilder::Range FusionBuilder::RangeOf(const Node& node) const {
  const BufferRange range = RangesOf(program_, node)[0];
  const Location& at = places_[range.buffer];
  return {at.kind, at.buffer, at.offset + range.begin, at.offset + range.end};
}

void FusionBuilder::FindLoop() {
  const KernelLoop loop = LoopOf(program_);
  fusion_.has_rows = loop.has_rows;
  fusion_.rows = loop.rows;
  fusion_.row = loop.row;
  elements_ = loop.elements;
}

void FusionBuilder::FindWrites() {
  for (const Node& node : program_.nodes) {
    if (node.op == Op::kStore || node.op == Op::kAccumulate) writes_.push_back(RangeOf(node));
  }
}

uint32_t FusionBuilder::NewRegister() {
  fusion_.memory.push_back(0);
  links_.push_back(false);
  read_.push_back(false);
  return static_cast<uint32_t>(fusion_.memory.size() - 1);
}

uint32_t FusionBuilder::In(ValueId id, TileLevel level) {
  const Value& value = values_[id];
  if (value.kind == Value::Kind::kOnce || value.kind == Value::Kind::kLoop) return value.made;
  const auto [at, fresh] = loaded_.try_emplace({id, level}, 0);
  if (!fresh) return at->second;
  TileOp load;
  load.type = TypeOf(id);
  load.level = level;
  load.where = value.where;
  load.views = value.views;
  const TensorType& type = program_.types[id];
  if (level == TileLevel::kFull && !order_.empty() && type.dims == ordered_) {
    Permute(order_, type, load.views);
  }
  load.out = {at->second = NewRegister()};
  read_[at->second] = true;
  MayBeIn(TileBytesOf(load.type));
  if (value.kind == Value::Kind::kPlaces) {
    load.kind = TileOp::Kind::kPlaces;
    MayBeIn(sizeof(int64_t));
  } else {
    load.kind = TileOp::Kind::kLoad;
    // Where the elements are one after the other, and stay as they are.
    const View& view = load.views[0];
    const auto bytes = static_cast<uint64_t>(view.offset) * TileBytesOf(load.type);
    const Range read = {value.where.kind, value.where.buffer, value.where.offset + bytes,
                        value.where.offset + bytes + Elements(id) * TileBytesOf(load.type)};
    const bool written = std::any_of(writes_.begin(), writes_.end(),
                                     [&](const Range& write) { return write.Overlaps(read); });
    if (level != TileLevel::kOnce && load.views.size() == 1 && IsDense(view) &&
        load.type != DType::kF4E2M1FN && load.type != DType::kBool && !written) {
      load.kind = TileOp::Kind::kLink;
      load.where.offset += bytes;
      links_[load.out[0]] = true;
    }
  }
  (level == TileLevel::kOnce ? fusion_.once : loads_).push_back(std::move(load));
  return at->second;
}

void FusionBuilder::Result(TileOp op, ValueId id, TileLevel level) {
  Value& value = values_[id];
  op.level = level;
  op.type = TypeOf(id);
  op.out = {value.made = NewRegister()};
  value.level = level;
  value.kind = level == TileLevel::kOnce ? Value::Kind::kOnce : Value::Kind::kLoop;
  MayBeIn(TileBytesOf(op.type));
  (level == TileLevel::kOnce ? fusion_.once : fusion_.ops).push_back(std::move(op));
}

void FusionBuilder::AddConstant(const Node& node) {
  Value& value = values_[node.first_result];
  const TensorType& type = program_.types[node.first_result];
  if (node.attributes.Has(A::kSplat) || Elements(node.first_result) == 1) {
    TileOp fill;
    fill.kind = TileOp::Kind::kFill;
    fill.code = LiteralOf(type, node.attributes).at(0);
    return Result(std::move(fill), node.first_result, TileLevel::kOnce);
  }
  const absl::string_view bytes = node.attributes.Bytes(A::kValues);
  value.where = {Location::Kind::kConstant, 0, constants_.size()};
  value.views = {LinearView(type.dims)};
  constants_.resize(constants_.size() + bytes.size());
  if (!bytes.empty()) std::memcpy(&constants_[value.where.offset], bytes.data(), bytes.size());
}

void FusionBuilder::AddMove(const Node& node) {
  const ValueId operand = node.operands[0];
  const ValueId result = node.first_result;
  Value& value = values_[result];
  value = values_[operand];
  if (value.kind == Value::Kind::kLoop) {
    if (Elements(operand) == Elements(result)) return;
    TileOp spread;
    spread.kind = TileOp::Kind::kSpread;
    spread.in = {In(operand, TileLevel::kRow)};
    return Result(std::move(spread), result, TileLevel::kFull);
  }
  if (value.kind == Value::Kind::kOnce) return;
  if (Elements(operand) == 1 && Elements(result) != 1) {
    const uint32_t made = In(operand, TileLevel::kOnce);
    value = Value();
    value.kind = Value::Kind::kOnce;
    value.made = made;
    return;
  }
  Move(node, program_.types[operand], program_.types[result], value.views);
}

void FusionBuilder::AddElementwise(const Node& node) {
  const ValueId result = node.first_result;
  const DType from = TypeOf(node.operands[0]);
  const auto is_once = [&](ValueId value) {
    return values_[value].kind != Value::Kind::kLoop && Elements(value) == 1;
  };
  const bool once =
      Elements(result) == 1 && std::all_of(node.operands.begin(), node.operands.end(), is_once);
  const TileLevel level = once                            ? TileLevel::kOnce
                          : Elements(result) == elements_ ? TileLevel::kFull
                                                          : TileLevel::kRow;
  if (node.op == Op::kBitcastConvert) {
    const uint32_t made = In(node.operands[0], level);
    values_[result] = values_[node.operands[0]];
    Value& value = values_[result];
    value.made = made;
    if (value.kind == Value::Kind::kLoop || value.kind == Value::Kind::kOnce) return;
    value.kind = once ? Value::Kind::kOnce : Value::Kind::kLoop;
    value.level = level;
    return;
  }
  TileOp op;
  op.from = from;
  const auto int_of = [&](A attribute) { return node.attributes.Int(attribute); };
  switch (node.op) {
    case Op::kConvert:
      op.kind = TileOp::Kind::kConvert;
      op.kernel = ConvertKernelOf(from, TypeOf(result));
      op.mode = {static_cast<Overflow>(int_of(A::kMode)),
                 static_cast<ScaleRounding>(int_of(A::kRounding))};
      break;
    case Op::kCompare:
      op.op = node.op;
      op.kernel = CompareKernelOf(static_cast<Direction>(int_of(A::kDirection)),
                                  int_of(A::kTotalOrder) != 0, from);
      break;
    case Op::kSelect:
      op.op = node.op;
      op.kernel = SelectKernelOf(TileBytesOf(TypeOf(result)));
      break;
    default:
      op.op = node.op;
      op.kernel = KernelOf(node.op, from);
  }
  FERRY_CHECK(op.kernel != nullptr || op.kind == TileOp::Kind::kConvert);
  for (const ValueId value : node.operands) {
    const bool scalar = Elements(value) != Elements(result);
    op.in.push_back(In(value, scalar ? TileLevel::kOnce : level));
  }
  Result(std::move(op), result, level);
}

void FusionBuilder::AddRowReduction(const Node& node) {
  const ValueId operand = node.operands[0];
  TileOp op;
  op.from = TypeOf(operand);
  const Value& value = values_[operand];
  if (value.kind == Value::Kind::kMemory || value.kind == Value::Kind::kPlaces) {
    OrderElements(node, value.views, ReducesAlone(node));
  }
  op.in = {In(operand, TileLevel::kFull)};
  fusion_.keeps_rows = true;
  if (node.op == Op::kArgmax) {
    op.kind = TileOp::Kind::kArgmax;
    Result(std::move(op), node.first_result, TileLevel::kRow);
  } else {
    op.kind = TileOp::Kind::kReduce;
    const DType type = AccumulatorOf(node, op.from);
    op.kernel = ConvertKernelOf(op.from, type);
    op.reduction = static_cast<Reduction>(node.attributes.Int(A::kReduction));
    MayBeIn(TileBytesOf(type));
    Result(std::move(op), node.first_result, TileLevel::kRow);
    fusion_.ops.back().type = type;
  }
  fusion_.ops.back().level = TileLevel::kFull;  // it looks at all of them
}

void FusionBuilder::AddBlocks(const Node& node) {
  const bool quantizes = node.op == Op::kQuantizeBlock;
  const ValueId data = quantizes ? node.first_result : node.operands[0];
  const ValueId scales = quantizes ? node.first_result + 1 : node.operands[1];
  const size_t global = quantizes ? 1 : 2;
  TileOp op;
  op.kind = quantizes ? TileOp::Kind::kQuantize : TileOp::Kind::kDequantize;
  op.from = TypeOf(node.operands[0]);
  op.mode.scale_rounding = static_cast<ScaleRounding>(node.attributes.Int(A::kRounding));
  op.format = {TypeOf(data), TypeOf(scales),
               BlockOf(node, program_.types[data], program_.types[scales])};
  op.in = {In(node.operands[0], TileLevel::kFull)};
  if (node.operands.size() > global) op.in.push_back(In(node.operands[global], TileLevel::kOnce));
  op.kernel = quantizes ? ConvertKernelOf(op.from, DType::kF32)
                        : ConvertKernelOf(DType::kF32, TypeOf(node.first_result));
  MayBeIn(sizeof(float));
  blocks_ = blocks_ > kMaxTile ? blocks_ : std::lcm(blocks_, op.format.block);
  if (quantizes) {
    Value& made = values_[scales];
    made.kind = Value::Kind::kLoop;
    made.level = TileLevel::kBlock;
    made.format = op.format;
    made.made = NewRegister();
  } else {
    const Value& from = values_[scales];
    op.where = from.where;
    op.views = from.views;
    if (from.kind == Value::Kind::kOnce) {  // a constant
      const Node& constant = program_.nodes[definitions_[scales]];
      const Literal literal = LiteralOf(program_.types[scales], constant.attributes);
      op.where = {Location::Kind::kConstant, 0, constants_.size()};
      constants_.push_back(static_cast<std::byte>(literal.at(0)));
      op.views = {LinearView(program_.types[scales].dims)};
      std::fill(op.views[0].strides.begin(), op.views[0].strides.end(), 0);
    }
    View& view = op.views[0];
    // There may be more rows of them than are needed.
    for (size_t d = 0; d + 1 < view.dims.size(); ++d) {
      view.dims[d] = program_.types[data].dims[d];
    }
  }
  Result(std::move(op), node.first_result, TileLevel::kFull);
  if (quantizes) fusion_.ops.back().out.push_back(values_[scales].made);
}

void FusionBuilder::AddSink(const Node& node) {
  const ValueId id = node.operands[0];
  const Value& value = values_[id];
  TileOp op;
  op.kind = node.op == Op::kStore ? TileOp::Kind::kStore : TileOp::Kind::kAccumulate;
  op.from = op.type = TypeOf(id);
  op.level = value.kind == Value::Kind::kLoop ? value.level
             : Elements(id) == elements_      ? TileLevel::kFull
                                              : TileLevel::kRow;
  op.format = value.format;
  if (op.kind == TileOp::Kind::kAccumulate) op.kernel = KernelOf(Op::kAdd, op.from);
  op.where = places_[node.buffers[0]];
  op.where.offset += static_cast<uint64_t>(node.attributes.Int(A::kOffset));
  op.views = {BufferView(node, program_.types[id])};
  op.in = {In(id, op.level)};
  MayBeIn(TileBytesOf(op.from));
  if (op.level == TileLevel::kRow) fusion_.keeps_rows = true;
  const bool dense = IsDense(op.views[0]);
  if (op.from == DType::kF4E2M1FN) {
    fusion_.shares_bytes = true;
    fusion_.alone = fusion_.alone || !dense || op.kind == TileOp::Kind::kAccumulate;
  }
  // Made where it is to be, if nobody else writes there.
  const Range range = RangeOf(node);
  const auto writers = std::count_if(writes_.begin(), writes_.end(),
                                     [&](const Range& other) { return other.Overlaps(range); });
  if (value.kind == Value::Kind::kLoop && op.kind == TileOp::Kind::kStore && dense &&
      op.from != DType::kF4E2M1FN && writers == 1 && !links_[value.made] && !read_[value.made]) {
    op.kind = TileOp::Kind::kLink;
    op.out = op.in;
    op.in.clear();
    links_[value.made] = true;
    loads_.push_back(std::move(op));
    return;
  }
  stores_.push_back(std::move(op));
}

void FusionBuilder::AddNode(const Node& node) {
  const ValueId result = node.first_result;
  if (IsMove(node.op)) return AddMove(node);
  switch (node.op) {
    case Op::kInput: {
      Value& value = values_[result];
      value.where = places_[node.buffers[0]];
      value.where.offset += static_cast<uint64_t>(node.attributes.Int(A::kOffset));
      value.views = {BufferView(node, program_.types[result])};
      return;
    }
    case Op::kConstant:
      return AddConstant(node);
    case Op::kIota: {
      Value& value = values_[result];
      value.kind = Value::Kind::kPlaces;
      View view = LinearView(program_.types[result].dims);
      std::fill(view.strides.begin(), view.strides.end(), 0);
      view.strides[static_cast<size_t>(node.attributes.Int(A::kDimension))] = 1;
      value.views = {std::move(view)};
      return;
    }
    case Op::kRngBits: {
      TileOp op;
      op.kind = TileOp::Kind::kRandom;
      op.in = {In(node.operands[0], TileLevel::kOnce), In(node.operands[1], TileLevel::kOnce)};
      const bool full = Elements(result) == elements_;
      return Result(std::move(op), result, full ? TileLevel::kFull : TileLevel::kRow);
    }
    case Op::kReduce:
    case Op::kArgmax:
      return AddRowReduction(node);
    case Op::kQuantizeBlock:
    case Op::kDequantizeBlock:
      return AddBlocks(node);
    case Op::kStore:
    case Op::kAccumulate:
      return AddSink(node);
    default:
      return AddElementwise(node);
  }
}

TileFusion FusionBuilder::Build() {
  values_.resize(program_.types.size());
  definitions_ = DefinitionsOf(program_);
  FindLoop();
  FindWrites();
  FindOrder();
  for (const Node& node : program_.nodes) AddNode(node);
  JoinChains(fusion_.once, loads_, stores_, fusion_.ops);
  FindRowEnds();
  std::vector<TileOp> ops = std::move(loads_);
  for (std::vector<TileOp>* part : {&fusion_.ops, &stores_}) {
    for (TileOp& op : *part) ops.push_back(std::move(op));
  }
  fusion_.ops = std::move(ops);
  ChooseSquares();
  ChooseTile();
  ShareMemory();
  return std::move(fusion_);
}

}  // namespace ferry::compute
