// SPDX-License-Identifier: Apache-2.0
#include "tests/compute/program_generator.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compute/program/rules.h"

namespace ferry::compute::testing {

using A = Attribute;

ProgramGenerator::ProgramGenerator(uint64_t seed, GeneratorOptions options)
    : random_(seed), options_(options) {}

DType ProgramGenerator::Pick(DTypeSet set) {
  std::vector<DType> types;
  for (size_t i = 0; i < kDTypes; ++i) {
    if (Contains(set, static_cast<DType>(i))) types.push_back(static_cast<DType>(i));
  }
  return types[Below(types.size())];
}

std::vector<int64_t> ProgramGenerator::Dims(size_t least_rank, size_t most_rank) {
  std::vector<int64_t> dims(least_rank + Below(most_rank - least_rank + 1));
  for (int64_t& dim : dims) {
    dim = Chance(8) ? 0 : Chance(20) ? 1 : 1 + static_cast<int64_t>(Below(options_.largest_dim));
  }
  return dims;
}

std::vector<int64_t> ProgramGenerator::Permutation(size_t rank) {
  std::vector<int64_t> permutation(rank);
  std::iota(permutation.begin(), permutation.end(), 0);
  std::shuffle(permutation.begin(), permutation.end(), random_);
  return permutation;
}

TensorType ProgramGenerator::Type(DTypeSet set, size_t least_rank, size_t most_rank) {
  return {Pick(set), Dims(least_rank, most_rank)};
}

OpIndex ProgramGenerator::AddNode(Node node, std::vector<TensorType> types) {
  const OpIndex index = program_.Append(std::move(node), std::move(types));
  const Node& added = program_.nodes[index];
  if (added.op != Op::kRepeat) {
    for (uint32_t i = 0; i < added.results; ++i) scope_.push_back(added.first_result + i);
  }
  return index;
}

ValueId ProgramGenerator::Add(Op op, std::vector<ValueId> operands, Attributes attributes,
                              std::vector<TensorType> types) {
  Node node;
  node.op = op;
  node.operands = std::move(operands);
  node.attributes = std::move(attributes);
  if (Chance(10)) node.label = absl::StrCat("made as ", program_.nodes.size());
  if (Chance(5) && !program_.nodes.empty() && nesting_ == 0) {
    const std::vector<int64_t> parents = ParentsOf(program_);
    const auto other = static_cast<OpIndex>(Below(program_.nodes.size()));
    if (parents[other] < 0) node.after.push_back(other);
  }
  Inference inference = Infer(program_, node, types);
  if (!inference.ok()) {
    std::fprintf(stderr, "generated %s: %s\n", std::string(InfoOf(op).name).c_str(),
                 inference.text.c_str());
  }
  FERRY_CHECK(inference.ok());
  return program_.nodes[AddNode(std::move(node), std::move(inference.results))].first_result;
}

ValueId ProgramGenerator::New(const TensorType& type) {
  const bool integer = !InfoOf(type.dtype).floating && type.dtype != DType::kBool;
  if (integer && !type.dims.empty() && Chance(30)) {
    const auto dimension = static_cast<int64_t>(Below(type.dims.size()));
    return Add(Op::kIota, {}, {{A::kDimension, dimension}}, {type});
  }
  const bool splat = *BytesOf(type) > static_cast<uint64_t>(kMaxInlineBytes) || Chance(50);
  std::string bytes(splat ? BytesOf(type.dtype, 1) : *BytesOf(type), '\0');
  for (char& byte : bytes) byte = static_cast<char>(Below(256));
  if (type.dtype == DType::kBool) {
    for (char& byte : bytes) byte &= 1;
  }
  const bool half = splat || *ElementsOf(type) % 2 != 0;
  if (type.dtype == DType::kF4E2M1FN && half && !bytes.empty()) bytes.back() &= 0x0f;
  return Add(Op::kConstant, {}, {{splat ? A::kSplat : A::kValues, bytes}}, {type});
}

ValueId ProgramGenerator::Value(const TensorType& type) {
  std::vector<ValueId> fit;
  for (const ValueId value : scope_) {
    if (program_.types[value] == type) fit.push_back(value);
  }
  return fit.empty() || Chance(20) ? New(type) : fit[Below(fit.size())];
}

ValueId ProgramGenerator::Any(DTypeSet set, size_t least_rank, size_t most_rank) {
  std::vector<ValueId> fit;
  for (const ValueId value : scope_) {
    const TensorType& type = program_.types[value];
    if (Contains(set, type.dtype) && type.dims.size() >= least_rank &&
        type.dims.size() <= most_rank && *ElementsOf(type) <= 4096) {
      fit.push_back(value);
    }
  }
  return fit.empty() || Chance(15) ? New(Type(set, least_rank, std::min<size_t>(most_rank, 3)))
                                   : fit[Below(fit.size())];
}

uint32_t ProgramGenerator::NewBuffer(Access access, uint64_t bytes) {
  Buffer buffer;
  buffer.name = absl::StrCat("b", program_.buffers.size());
  buffer.access = access;
  buffer.bytes = bytes;
  buffer.donated = access == Access::kReadWrite;
  buffer.constant = access == Access::kRead && bytes % 3 == 0;
  program_.buffers.push_back(buffer);
  return static_cast<uint32_t>(program_.buffers.size() - 1);
}

void ProgramGenerator::AddShape(Op op) {
  const ValueId value = Any(dtypes::kAll, op == Op::kConcatenate || op == Op::kGatherRows ? 1 : 0);
  const TensorType type = program_.types[value];
  const size_t rank = type.dims.size();
  switch (op) {
    case Op::kBroadcastInDim: {
      // New dimensions between the old; those of 1 grow.
      TensorType to = {type.dtype, {}};
      std::vector<int64_t> dimensions;
      for (const int64_t dim : type.dims) {
        if (Chance(40) && to.dims.size() + rank < static_cast<size_t>(kMaxRank)) {
          to.dims.push_back(static_cast<int64_t>(Below(3)));
        }
        dimensions.push_back(static_cast<int64_t>(to.dims.size()));
        to.dims.push_back(dim == 1 && Chance(50) ? static_cast<int64_t>(Below(4)) : dim);
      }
      Add(op, {value}, {{A::kDimensions, dimensions}}, {to});
      return;
    }
    case Op::kReshape: {
      const auto elements = static_cast<int64_t>(*ElementsOf(type));
      std::vector<int64_t> dims = {elements};
      if (elements % 2 == 0 && elements > 0) dims = {2, elements / 2};
      if (Chance(30)) dims.insert(dims.begin() + Below(dims.size() + 1), 1);
      Add(op, {value}, {}, {{type.dtype, dims}});
      return;
    }
    case Op::kTranspose:
      Add(op, {value}, {{A::kPermutation, Permutation(rank)}});
      return;
    case Op::kReverse: {
      std::vector<int64_t> some = Permutation(rank);
      some.resize(Below(rank + 1));
      Add(op, {value}, {{A::kDimensions, some}});
      return;
    }
    case Op::kSlice: {
      std::vector<int64_t> start, limit, step;
      for (const int64_t dim : type.dims) {
        start.push_back(static_cast<int64_t>(Below(dim + 1)));
        limit.push_back(start.back() + static_cast<int64_t>(Below(dim - start.back() + 1)));
        step.push_back(1 + static_cast<int64_t>(Below(3)));
      }
      if (Chance(50)) step.clear();
      Add(op, {value}, {{A::kStart, start}, {A::kLimit, limit}, {A::kStep, step}});
      return;
    }
    case Op::kDynamicSlice: {
      std::vector<ValueId> operands = {value};
      std::vector<int64_t> sizes;
      const DType index = Pick(dtypes::kIntegers);
      for (const int64_t dim : type.dims) {
        operands.push_back(Value({index, {}}));
        sizes.push_back(static_cast<int64_t>(Below(dim + 1)));
      }
      Add(op, operands, {{A::kSizes, sizes}});
      return;
    }
    case Op::kPad: {
      std::vector<int64_t> counts[3];
      for (std::vector<int64_t>& count : counts) {
        if (Chance(30)) continue;
        for (size_t i = 0; i < rank; ++i) count.push_back(static_cast<int64_t>(Below(3)));
      }
      Add(op, {value, Value({type.dtype, {}})},
          {{A::kLow, counts[0]}, {A::kHigh, counts[1]}, {A::kInterior, counts[2]}});
      return;
    }
    case Op::kConcatenate: {
      const auto dimension = static_cast<int64_t>(Below(rank));
      std::vector<ValueId> operands = {value};
      while (Chance(60) && operands.size() < 4) {
        TensorType other = type;
        other.dims[dimension] = static_cast<int64_t>(Below(4));
        operands.push_back(Value(other));
      }
      Add(op, operands, {{A::kDimension, dimension}});
      return;
    }
    default: {  // kGatherRows
      TensorType indices = Type(dtypes::kIntegers, 0, 2);
      if (type.dims[0] == 0) indices.dims = {0};
      Add(op, {value, Value(indices)});
    }
  }
}

void ProgramGenerator::AddEffect(Op op) {
  Node node;
  node.op = op;
  std::vector<TensorType> types;
  const auto offset = static_cast<int64_t>(Below(3) * 8);
  if (op == Op::kSend || op == Op::kRecv) {
    if (nesting_ > 0 || !options_.transfers) return;
    node.attributes = {{A::kDevice, static_cast<int64_t>(Below(4))},
                       {A::kKey, absl::StrCat("key\n", keys_++)}};
    if (op == Op::kRecv) types = {Type(dtypes::kAll)};
    if (op == Op::kSend) node.operands = {Any(dtypes::kAll)};
  } else if (op == Op::kCopy) {
    const auto bytes = static_cast<int64_t>(Below(64));
    node.buffers = {NewBuffer(Access::kWrite, 128), NewBuffer(Access::kRead, 128)};
    node.attributes = {{A::kBytes, bytes}, {A::kOffset, offset}, {A::kSourceOffset, bytes / 2}};
  } else if (op == Op::kInput) {
    types = {Type(dtypes::kAll)};
    const uint64_t bytes = *BytesOf(types[0]);
    node.buffers = {NewBuffer(Chance(50) ? Access::kRead : Access::kReadWrite, bytes * 3 + 64)};
    node.attributes = {{A::kOffset, offset}};
    if (types[0].dims.size() == 1 && types[0].dtype != DType::kF4E2M1FN && Chance(50)) {
      node.attributes.Set(A::kStrides, std::vector<int64_t>{static_cast<int64_t>(Below(4))});
    }
  } else {
    const ValueId value = Any(op == Op::kAccumulate ? dtypes::kNumbers : dtypes::kAll);
    node.operands = {value};
    node.attributes = {{A::kOffset, offset}};
    node.buffers = {NewBuffer(op == Op::kStore ? Access::kWrite : Access::kReadWrite,
                              *BytesOf(program_.types[value]) + 64)};
    // Sometimes twice into the same place, one after the other.
    if (Chance(30)) {
      Node again = node;
      again.after = {AddNode(node, {})};
      node = again;
    }
  }
  AddNode(std::move(node), std::move(types));
}

void ProgramGenerator::AddRepeat() {
  if (nesting_ >= 2) return;
  Node node;
  node.op = Op::kRepeat;
  std::vector<TensorType> types;
  while (Chance(60) && node.operands.size() < 3) {
    node.operands.push_back(Any(dtypes::kAll, 0, 3));
    types.push_back(program_.types[node.operands.back()]);
  }
  node.attributes = {{A::kTrips, static_cast<int64_t>(Below(4))}};
  const OpIndex repeat = AddNode(std::move(node), types);
  const std::vector<ValueId> before = scope_;
  const Node& added = program_.nodes[repeat];
  for (size_t i = 0; i < added.parameters(); ++i) {
    scope_.push_back(added.first_parameter() + static_cast<ValueId>(i));
  }
  ++nesting_;
  for (size_t left = Below(6); left > 0; --left) AddRandom(static_cast<Op>(Below(kOps)));
  std::vector<ValueId> yielded;
  for (const TensorType& type : types) yielded.push_back(Value(type));
  --nesting_;
  program_.Close(repeat, yielded);
  scope_ = before;
  for (uint32_t i = 0; i < types.size(); ++i) scope_.push_back(program_.Result(repeat, i));
}

void ProgramGenerator::AddRandom(Op op) {
  const OpInfo& info = InfoOf(op);
  switch (op) {
    case Op::kInput:
    case Op::kStore:
    case Op::kAccumulate:
    case Op::kCopy:
    case Op::kSend:
    case Op::kRecv:
      return AddEffect(op);
    case Op::kChecksum:
    case Op::kDeltaEncode:
    case Op::kDeltaApply:
      return AddDelta(op);
    case Op::kConstant:
      New(Type(dtypes::kAll));
      return;
    case Op::kEmpty: {  // in part of something: all of it nobody may read
      const ValueId value = Any(dtypes::kAll, 1);
      TensorType type = program_.types[value];
      type.dims[0] = static_cast<int64_t>(Below(4));
      Node node;
      node.op = op;
      const ValueId empty = program_.Result(program_.Append(std::move(node), {type}));
      Add(Op::kConcatenate, {value, empty}, {{A::kDimension, int64_t{0}}});
      return;
    }
    case Op::kIota: {
      const TensorType type = Type(dtypes::kNumbers, 1);
      Add(op, {}, {{A::kDimension, static_cast<int64_t>(Below(type.dims.size()))}}, {type});
      return;
    }
    case Op::kRngBits: {
      const ValueId key = Value({DType::kU64, {}});
      const TensorType type = Type(SetOf(DType::kU32) | SetOf(DType::kU64));
      Add(op, {key, Value({DType::kU64, {}})}, {}, {type});
      return;
    }
    case Op::kCompare: {
      const ValueId value = Any(info.dtypes);
      const TensorType type = program_.types[value];
      Attributes attributes = {{A::kDirection, static_cast<int64_t>(Below(6))}};
      if (InfoOf(type.dtype).floating && Chance(50)) attributes.Set(A::kTotalOrder, int64_t{1});
      Add(op, {value, Value(type)}, attributes);
      return;
    }
    case Op::kSelect: {
      const ValueId value = Any(dtypes::kAll);
      const TensorType type = program_.types[value];
      const ValueId other = Value(type);
      Add(op,
          {Value({DType::kBool, Chance(30) ? std::vector<int64_t>() : type.dims}), value, other});
      return;
    }
    case Op::kClamp: {
      const ValueId value = Any(info.dtypes);
      const TensorType type = program_.types[value];
      const ValueId low = Value({type.dtype, Chance(50) ? std::vector<int64_t>() : type.dims});
      Add(op, {low, value, Value({type.dtype, Chance(50) ? std::vector<int64_t>() : type.dims})});
      return;
    }
    case Op::kConvert: {
      const ValueId value = Any(dtypes::kAll);
      const TensorType to = {Pick(dtypes::kAll), program_.types[value].dims};
      Attributes attributes;
      if (Contains(dtypes::kSmallFloats | dtypes::kScales, to.dtype)) {
        attributes.Set(A::kMode, static_cast<int64_t>(Below(2)));
      }
      if (to.dtype == DType::kF8E8M0FNU) {
        attributes.Set(A::kRounding, static_cast<int64_t>(Below(3)));
      }
      Add(op, {value}, attributes, {to});
      return;
    }
    case Op::kBitcastConvert: {
      const ValueId value = Any(dtypes::kNoBool, 0, 3);
      const TensorType from = program_.types[value];
      TensorType to = {Pick(dtypes::kNoBool), from.dims};
      const int ratio = InfoOf(from.dtype).bits / InfoOf(to.dtype).bits;
      if (ratio == 0) to.dtype = from.dtype;  // wider: only of a last dimension that fits
      if (ratio > 1) to.dims.push_back(ratio);
      Add(op, {value}, {}, {to});
      return;
    }
    case Op::kQuantizeBlock:
    case Op::kDequantizeBlock:
    case Op::kBlockScaledDot:
      return AddBlocks(op);
    case Op::kSwizzleScales:
      Add(op, {Any(dtypes::kScales, 2, 2)});
      return;
    case Op::kUnswizzleScales: {
      const TensorType plain = Type(dtypes::kScales, 2, 2);
      const ValueId swizzled = Add(Op::kSwizzleScales, {Value(plain)});
      Add(op, {swizzled}, {}, {plain});
      return;
    }
    case Op::kBroadcastInDim:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kSlice:
    case Op::kDynamicSlice:
    case Op::kPad:
    case Op::kConcatenate:
    case Op::kReverse:
    case Op::kGatherRows:
      return AddShape(op);
    case Op::kReduce: {
      const bool logical = Chance(20);
      const ValueId value = Any(logical ? dtypes::kBool : dtypes::kNumbers);
      std::vector<int64_t> some = Permutation(program_.types[value].dims.size());
      some.resize(Below(some.size() + 1));
      const auto reduction = static_cast<int64_t>(logical ? 4 + Below(2) : Below(4));
      Add(op, {value}, {{A::kReduction, reduction}, {A::kDimensions, some}});
      return;
    }
    case Op::kArgmax:
    case Op::kCumulativeSum: {
      const ValueId value = Any(info.dtypes, 1);
      const TensorType type = program_.types[value];
      const auto dimension = static_cast<int64_t>(Below(type.dims.size()));
      if (op == Op::kArgmax && type.dims[dimension] == 0) return;
      Add(op, {value}, {{A::kDimension, dimension}});
      return;
    }
    case Op::kDotGeneral:
      return AddDot();
    case Op::kBarrier:
    case Op::kKeep: {
      std::vector<ValueId> values = {Any(dtypes::kAll)};
      while (Chance(50)) values.push_back(Any(dtypes::kAll));
      if (op == Op::kBarrier) {
        Add(op, values);
      } else {
        Node node;
        node.op = op;
        node.operands = values;
        AddNode(std::move(node), {});
      }
      return;
    }
    case Op::kRepeat:
      return AddRepeat();
    default: {  // elementwise: operands of one type
      const ValueId value = Any(info.dtypes);
      std::vector<ValueId> operands = {value};
      while (operands.size() < info.operands.least) {
        operands.push_back(Value(program_.types[value]));
      }
      Add(op, operands);
    }
  }
}

Program ProgramGenerator::Make() {
  program_ = Program();
  scope_.clear();
  keys_ = 0;
  program_.numerics.accumulation = static_cast<Accumulation>(Below(4));
  program_.numerics.allow_reassociation = Chance(50);
  for (int i = 0; i < options_.ops; ++i) AddRandom(static_cast<Op>(Below(kOps)));
  return std::move(program_);
}

}  // namespace ferry::compute::testing
