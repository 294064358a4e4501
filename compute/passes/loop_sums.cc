// SPDX-License-Identifier: Apache-2.0
// `sum += reduce(x)` in the body of a repeat becomes `partial += x` there, and `sum +
// reduce(partial)` after it. Each round finds what can be moved out of the repeat that it is in,
// and moves it: what has come to be in the body of another repeat is looked at again.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "compute/passes/copier.h"
#include "compute/passes/literal.h"
#include "compute/passes/passes.h"
#include "compute/program/limits.h"

namespace ferry::compute {
namespace {

using A = Attribute;

// A sum that a repeat carries round.
struct LoopSum {
  size_t carried = 0;         // which of what the repeat carries
  OpIndex add = 0;            // that makes it the next trip's
  OpIndex reduce = 0;         // whose result is added
  std::vector<OpIndex> path;  // ops between the two, from the reduction on
  TensorType partial;         // what is carried instead
  ValueId nothing = 0;        // of the copy: a partial sum of nothing
};

bool IsScalarSelect(const Program& program, const Node& node) {
  return node.op == Op::kSelect && program.types[node.operands[0]].dims.empty();
}

bool MovesElements(Op op) {
  switch (op) {
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kBroadcastInDim:
    case Op::kSlice:
    case Op::kReverse:
    case Op::kDynamicSlice:
      return true;
    default:
      return false;
  }
}

// Is what is added in `from` and then converted the same as what is converted and then added? Of
// floating types but for roundings that go; of integers, which wrap, to the bit.
bool KeepsSums(DType from, DType to) {
  const DTypeInfo& a = InfoOf(from);
  const DTypeInfo& b = InfoOf(to);
  if (Contains(dtypes::kIntegers, from)) return Contains(dtypes::kIntegers, to) && b.bits <= a.bits;
  return Contains(dtypes::kFloats, from) && Contains(dtypes::kFloats, to) &&
         (from == to || b.bits > a.bits);
}

// That adds nothing, also where a sum is -0.
Literal NothingOf(const TensorType& type) {
  const DTypeInfo& info = InfoOf(type.dtype);
  return {type, {info.floating ? uint64_t{1} << (info.bits - 1) : 0}};
}

class LoopSumFinder {
 public:
  explicit LoopSumFinder(const Program& program)
      : program_(program),
        definitions_(DefinitionsOf(program)),
        parents_(ParentsOf(program)),
        fixed_(FixedOps(program)),
        uses_(program.types.size()) {
    for (const Node& node : program.nodes) {
      for (const ValueId value : node.operands) ++uses_[value];
      for (const ValueId value : node.yielded) ++uses_[value];
    }
  }

  std::vector<LoopSum> In(OpIndex repeat) const {
    std::vector<LoopSum> sums;
    uint64_t bytes = 0;
    for (size_t i = 0; i < program_.nodes[repeat].operands.size(); ++i) {
      std::optional<LoopSum> sum = Match(repeat, i);
      if (!sum || bytes + *BytesOf(sum->partial) > kMaxPartialBytes) continue;
      bytes += *BytesOf(sum->partial);
      sums.push_back(*std::move(sum));
    }
    return LostOrders(repeat, sums).size() > kMaxOperands ? std::vector<LoopSum>() : sums;
  }

  // What `repeat` was after only as it needed values that are needed after it now, and is to be
  // after all the same: ops of its body may touch what those touch.
  std::vector<OpIndex> LostOrders(OpIndex repeat, const std::vector<LoopSum>& sums) const {
    const Node& node = program_.nodes[repeat];
    std::vector<OpIndex> orders = node.after;
    const auto body = program_.nodes.begin() + repeat + 1;
    const bool effects = std::any_of(body, body + node.body, [](const Node& one) {
      return !one.buffers.empty() || InfoOf(one.op).effect == Effect::kSideEffecting;
    });
    const auto add = [&](ValueId value) {
      const OpIndex op = definitions_[value];
      const Node& by = program_.nodes[op];
      const bool ordered = !by.operands.empty() || !by.buffers.empty() || !by.after.empty();
      if (effects && ordered && op < repeat && parents_[op] == parents_[repeat]) {
        orders.push_back(op);
      }
    };
    for (const LoopSum& sum : sums) {
      add(node.operands[sum.carried]);
      for (const OpIndex op : sum.path) {
        for (const ValueId value : program_.nodes[op].operands) add(value);
      }
    }
    std::sort(orders.begin(), orders.end());
    orders.erase(std::unique(orders.begin(), orders.end()), orders.end());
    return orders;
  }

 private:
  bool IsInvariant(ValueId value, OpIndex repeat) const { return definitions_[value] < repeat; }

  bool IsZero(ValueId value) const {
    const Node& node = program_.nodes[definitions_[value]];
    if (node.op != Op::kConstant) return false;
    const TensorType& type = program_.types[value];
    const uint64_t sign = NothingOf(type).codes[0];
    const Literal literal = LiteralOf(type, node.attributes);
    return std::all_of(literal.codes.begin(), literal.codes.end(),
                       [&](uint64_t code) { return (code & ~sign) == 0; });
  }

  // The op of the body itself that makes `value`, which nobody has but `value`'s one user.
  const Node* OnlyUsed(ValueId value, OpIndex repeat) const {
    const OpIndex op = definitions_[value];
    const bool mine = op > repeat && parents_[op] == static_cast<int64_t>(repeat);
    return mine && uses_[value] == 1 && !fixed_[op] ? &program_.nodes[op] : nullptr;
  }

  std::optional<LoopSum> Match(OpIndex repeat, size_t carried) const {
    const Node& loop = program_.nodes[repeat];
    const auto parameter = static_cast<ValueId>(loop.first_parameter() + 1 + carried);
    const Node* add = OnlyUsed(loop.yielded[carried], repeat);
    if (loop.attributes.Int(A::kTrips) < 2 || uses_[parameter] != 1 || add == nullptr ||
        add->op != Op::kAdd || (add->operands[0] == parameter) == (add->operands[1] == parameter)) {
      return std::nullopt;
    }
    LoopSum sum;
    sum.carried = carried;
    sum.add = definitions_[add->first_result];
    ValueId value = add->operands[add->operands[0] == parameter ? 1 : 0];
    while (true) {
      const Node* node = OnlyUsed(value, repeat);
      if (node == nullptr) return std::nullopt;
      if (node->op == Op::kReduce) break;
      if (!MayBeBetween(*node, repeat)) return std::nullopt;
      sum.path.insert(sum.path.begin(), definitions_[value]);
      value = node->operands[node->op == Op::kSelect ? 1 : 0];
    }
    sum.reduce = definitions_[value];
    const std::optional<TensorType> partial = PartialOf(sum, program_.types[parameter]);
    if (!partial) return std::nullopt;
    sum.partial = *partial;
    return sum;
  }

  bool MayBeBetween(const Node& node, OpIndex repeat) const {
    const auto invariant = [&](ValueId value) { return IsInvariant(value, repeat); };
    if (node.op == Op::kConvert) {
      return KeepsSums(program_.types[node.operands[0]].dtype,
                       program_.types[node.first_result].dtype);
    }
    // One predicate for all elements may be another each trip.
    if (node.op == Op::kSelect) {
      return IsZero(node.operands[2]) &&
             (IsScalarSelect(program_, node) || invariant(node.operands[0]));
    }
    return MovesElements(node.op) &&
           std::all_of(node.operands.begin() + 1, node.operands.end(), invariant);
  }

  // The type to sum in; nothing if this cannot be done, or is not worth it.
  std::optional<TensorType> PartialOf(const LoopSum& sum, const TensorType& carried) const {
    const Node& reduce = program_.nodes[sum.reduce];
    const TensorType& from = program_.types[reduce.operands[0]];
    const TensorType& to = program_.types[reduce.first_result];
    const bool floating = Contains(dtypes::kFloats, from.dtype);
    if (static_cast<Reduction>(reduce.attributes.Int(A::kReduction)) != Reduction::kSum ||
        (floating && !program_.numerics.allow_reassociation) ||
        *ElementsOf(from) <= *ElementsOf(to)) {
      return std::nullopt;
    }
    TensorType partial{carried.dtype, from.dims};
    if (floating) {
      const auto accumulate = reduce.attributes.Has(A::kAccumulate)
                                  ? static_cast<DType>(reduce.attributes.Int(A::kAccumulate))
                                  : carried.dtype;
      for (const DType type : {DType::kF32, accumulate}) {
        if (InfoOf(type).bits > InfoOf(partial.dtype).bits) partial.dtype = type;
      }
    }
    return BytesOf(partial) ? std::optional(partial) : std::nullopt;
  }

  const Program& program_;
  const std::vector<OpIndex> definitions_;
  const std::vector<int64_t> parents_;
  const std::vector<bool> fixed_;
  std::vector<uint32_t> uses_;  // by value
};

class LoopSumMover {
 public:
  explicit LoopSumMover(const Program& program)
      : program_(program),
        finder_(program),
        copier_(program),
        sums_(program.nodes.size()),
        gone_(program.nodes.size()),
        adds_(program.nodes.size()) {}

  // Nothing if there is nothing to move.
  std::optional<Program> Run() {
    bool any = false;
    for (OpIndex i = 0; i < program_.nodes.size(); ++i) {
      if (program_.nodes[i].op != Op::kRepeat) continue;
      sums_[i] = finder_.In(i);
      for (LoopSum& sum : sums_[i]) {
        any = true;
        gone_[sum.reduce] = true;
        for (const OpIndex op : sum.path) gone_[op] = true;
        adds_[sum.add] = &sum;
      }
    }
    if (!any) return std::nullopt;
    return copier_.Run([&](OpIndex index) { Pass(index); }, [&](OpIndex repeat) { Close(repeat); });
  }

 private:
  const TensorType& TypeOf(ValueId value) { return copier_.to().types[value]; }
  ValueId Append(Node node, TensorType type) {
    return copier_.to().Result(copier_.to().Append(std::move(node), {std::move(type)}));
  }
  ValueId AppendOp(Op op, std::vector<ValueId> operands, TensorType type) {
    Node node;
    node.op = op;
    node.operands = std::move(operands);
    return Append(std::move(node), std::move(type));
  }
  ValueId Converted(ValueId value, DType dtype) {
    TensorType type = TypeOf(value);
    if (type.dtype == dtype) return value;
    type.dtype = dtype;
    return AppendOp(Op::kConvert, {value}, std::move(type));
  }

  void Pass(OpIndex index) {
    if (gone_[index]) return;
    if (adds_[index] != nullptr) return PutAdd(*adds_[index]);
    Node node = copier_.Renumbered(index);
    std::vector<LoopSum>& sums = sums_[index];
    if (!sums.empty()) {
      node.after = finder_.LostOrders(index, sums);
      for (OpIndex& other : node.after) other = copier_.ops[other];
    }
    for (LoopSum& sum : sums) {
      sum.nothing = Append(ConstantOf(NothingOf(sum.partial)), sum.partial);
      node.operands[sum.carried] = sum.nothing;
    }
    const OpIndex put = copier_.Put(index, std::move(node));
    for (const LoopSum& sum : sums) Retype(put, sum.carried, sum.partial);
  }

  void Retype(OpIndex op, size_t result, const TensorType& type) {
    copier_.to().types[copier_.to().Result(op, static_cast<uint32_t>(result))] = type;
  }

  // In the body: adds what was reduced, element by element.
  void PutAdd(const LoopSum& sum) {
    const Node& old = program_.nodes[sum.add];
    ValueId term = copier_.values[program_.nodes[sum.reduce].operands[0]];
    term = Converted(term, sum.partial.dtype);
    for (const OpIndex op : sum.path) {
      const Node& node = program_.nodes[op];
      if (!IsScalarSelect(program_, node)) continue;
      const ValueId predicate = copier_.values[node.operands[0]];
      term = AppendOp(Op::kSelect, {predicate, term, sum.nothing}, sum.partial);
    }
    Node add;
    add.op = Op::kAdd;
    add.label = old.label;
    for (const ValueId operand : old.operands) {
      const ValueId now = copier_.values[operand];
      add.operands.push_back(now == Copier::kGone ? term : now);
    }
    Retype(copier_.Put(sum.add, std::move(add)), 0, sum.partial);
  }

  // After the repeat: reduces once, goes the way that each trip's went, and adds what there was.
  void Close(OpIndex repeat) {
    const Node& loop = program_.nodes[repeat];
    for (const LoopSum& sum : sums_[repeat]) {
      const ValueId result = loop.first_result + static_cast<ValueId>(sum.carried);
      const Node& old = program_.nodes[sum.reduce];
      const auto dimensions = old.attributes.Ints(A::kDimensions);
      Node reduce;
      reduce.op = Op::kReduce;
      reduce.label = old.label;
      reduce.operands = {copier_.values[result]};
      reduce.attributes = {
          {A::kReduction, static_cast<int64_t>(Reduction::kSum)},
          {A::kDimensions, std::vector<int64_t>(dimensions.begin(), dimensions.end())}};
      const DType dtype = sum.partial.dtype;
      ValueId value = Append(std::move(reduce), {dtype, program_.types[old.first_result].dims});
      for (const OpIndex op : sum.path) value = Followed(program_.nodes[op], value, dtype);
      const TensorType& type = program_.types[result];
      value = Converted(value, type.dtype);
      copier_.values[result] =
          AppendOp(Op::kAdd, {copier_.values[loop.operands[sum.carried]], value}, type);
    }
  }

  // What `old` makes of `value`, which has another type there.
  ValueId Followed(const Node& old, ValueId value, DType dtype) {
    if (old.op == Op::kConvert || IsScalarSelect(program_, old)) return value;
    const TensorType type{dtype, program_.types[old.first_result].dims};
    Node node = old;
    node.operands.clear();
    for (const ValueId operand : old.operands) node.operands.push_back(copier_.values[operand]);
    node.operands[old.op == Op::kSelect ? 1 : 0] = value;
    if (old.op == Op::kSelect) {
      node.operands[2] = Append(ConstantOf({type, {0}}), type);
    }
    return Append(std::move(node), type);
  }

  const Program& program_;
  const LoopSumFinder finder_;
  Copier copier_;
  std::vector<std::vector<LoopSum>> sums_;  // by repeat
  std::vector<bool> gone_;                  // by op
  std::vector<const LoopSum*> adds_;        // by op
};

}  // namespace

Program MoveReductionsOutOfLoops(const Program& program) {
  Program result = program;
  while (std::optional<Program> moved = LoopSumMover(result).Run()) {
    if (moved->nodes.size() > kMaxOps) break;
    result = *std::move(moved);
  }
  return result;
}

}  // namespace ferry::compute
