// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/passes/copier.h"
#include "compute/passes/literal.h"
#include "compute/passes/passes.h"
#include "compute/program/limits.h"
#include "compute/program/verify.h"

namespace ferry::compute {
namespace {

using A = Attribute;

// By operand of an op: the dimension of the operand that becomes dimension 0 of the results. kAll:
// there is none, and each row of the results needs all of the operand.
using RowOperands = std::vector<int64_t>;
constexpr int64_t kAll = -1;

bool Has(absl::Span<const int64_t> list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool IsZeroAt0(const Node& node, A attribute) {
  const auto list = node.attributes.Ints(attribute);
  return list.empty() || list[0] == 0;
}

// The bytes from one row of a buffer's tensor to the next; nothing if they are not whole.
std::optional<int64_t> RowBytes(const TensorType& type, absl::Span<const int64_t> strides) {
  int64_t elements = strides.empty() ? 1 : strides[0];
  if (strides.empty()) {
    for (size_t i = 1; i < type.dims.size(); ++i) elements *= type.dims[i];
  }
  const int64_t bits = elements * static_cast<int64_t>(InfoOf(type.dtype).bits);
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

// Where part number `part` of `rows` rows in `parts` parts begins.
int64_t BeginOf(int64_t rows, int64_t parts, int64_t part) {
  return rows / parts * part + rows % parts * part / parts;
}

class Rows {
 public:
  explicit Rows(const Program& program) : program_(program) {}

  // Nothing if a row of the results may depend on other rows of the operands, or if this is not
  // known.
  std::optional<RowOperands> Of(const Node& node) const {
    const TensorType& type = program_.types[node.first_result];
    if (node.results == 0 || type.dims.empty()) return std::nullopt;
    if (!node.operands.empty() && IsElementwise(node, type, Operand(node, 0))) {
      return BySize(node, type.dims[0]);
    }
    switch (node.op) {
      case Op::kInput:
        if (!RowBytes(type, node.attributes.Ints(A::kStrides))) return std::nullopt;
        return RowOperands();
      case Op::kConstant:
        if (!node.attributes.Has(A::kSplat)) return std::nullopt;
        return RowOperands();
      case Op::kIota:
        if (node.attributes.Int(A::kDimension) == 0) return std::nullopt;
        return RowOperands();
      case Op::kQuantizeBlock:
      case Op::kDequantizeBlock:
        return OfBlocks(node, type.dims[0]);
      default:
        return OfMoveOrReduction(node, type);
    }
  }

 private:
  const TensorType& Operand(const Node& node, size_t index) const {
    return program_.types[node.operands[index]];
  }

  RowOperands BySize(const Node& node, int64_t rows) const {
    RowOperands by_rows;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const std::vector<int64_t>& dims = Operand(node, i).dims;
      by_rows.push_back(!dims.empty() && dims[0] == rows ? 0 : kAll);
    }
    return by_rows;
  }

  // Blocks lie along the last dimension.
  std::optional<RowOperands> OfBlocks(const Node& node, int64_t rows) const {
    for (const TensorType& type : program_.ResultTypes(node)) {
      if (type.dims.size() < 2 || type.dims[0] != rows) return std::nullopt;
    }
    for (const ValueId operand : node.operands) {
      const std::vector<int64_t>& dims = program_.types[operand].dims;
      if (!dims.empty() && dims[0] != rows) return std::nullopt;
    }
    return BySize(node, rows);
  }

  std::optional<RowOperands> OfMoveOrReduction(const Node& node, const TensorType& type) const {
    const Attributes& attributes = node.attributes;
    const auto all_if = [&](bool rows) {
      return rows ? std::optional(RowOperands(node.operands.size(), 0)) : std::nullopt;
    };
    switch (node.op) {
      case Op::kReduce:
        return all_if(!Has(attributes.Ints(A::kDimensions), 0));
      case Op::kArgmax:
      case Op::kCumulativeSum:
      case Op::kConcatenate:
        return all_if(attributes.Int(A::kDimension) != 0);
      case Op::kReverse:
        return all_if(!Has(attributes.Ints(A::kDimensions), 0));
      case Op::kTranspose:
        return RowOperands{attributes.Ints(A::kPermutation)[0]};
      case Op::kReshape:
        return all_if(!Operand(node, 0).dims.empty() && Operand(node, 0).dims[0] == type.dims[0]);
      case Op::kSlice:
        return all_if(IsZeroAt0(node, A::kStart) && type.dims[0] == Operand(node, 0).dims[0]);
      case Op::kPad:
        if (!IsZeroAt0(node, A::kLow) || !IsZeroAt0(node, A::kHigh) ||
            !IsZeroAt0(node, A::kInterior)) {
          return std::nullopt;
        }
        return RowOperands{0, kAll};
      case Op::kBroadcastInDim: {
        const auto dimensions = attributes.Ints(A::kDimensions);
        if (!Has(dimensions, 0)) return RowOperands{kAll};
        const std::vector<int64_t>& dims = Operand(node, 0).dims;
        if (dimensions[0] != 0) return std::nullopt;
        return RowOperands{dims[0] == type.dims[0] ? 0 : kAll};
      }
      default:
        return std::nullopt;
    }
  }

  const Program& program_;
};

class Parting {
 public:
  // `whole`: by op, whether it is not to be done in parts. Transfers with parts are anyway.
  Parting(const Program& program, const std::vector<bool>& whole)
      : program_(program),
        whole_(whole),
        rows_(program),
        copier_(program),
        parents_(ParentsOf(program)),
        definitions_(DefinitionsOf(program)),
        uses_(program.types.size()),
        yielded_(program.types.size()),
        ordered_(OrderedOps(program)),
        parts_(program.nodes.size()),
        pieces_(program.types.size()) {
    for (OpIndex i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      for (const ValueId value : node.operands) uses_[value].push_back(i);
      for (const ValueId value : node.yielded) yielded_[value] = true;
      if (IsTransfer(node)) parts_[i] = node.attributes.Int(A::kParts);
    }
  }

  Program Run() {
    for (bool marked = true; marked;) {
      marked = false;
      for (size_t i = program_.nodes.size(); i-- > 0;) marked |= MarkByUses(i);
      for (size_t i = 0; i < program_.nodes.size(); ++i) marked |= MarkByOperands(i);
    }
    if (Ops() > kMaxOps) KeepOnlyTransfers();
    return copier_.Run([&](OpIndex index) {
      if (NeedsPending(index)) PartPending();
      if (parts_[index] == 0) {
        copier_.Put(index, copier_.Renumbered(index));
        SetOrigin(index);
      } else {
        pending_.push_back(index);
      }
      if (index + program_.nodes[index].body + 1 == program_.nodes.size()) PartPending();
    });
  }

  // The op of which op `index` of the result was made.
  OpIndex OriginOf(OpIndex index) const { return origins_[index]; }

 private:
  static bool IsTransfer(const Node& node) { return node.op == Op::kSend || node.op == Op::kRecv; }
  static bool IsWrite(const Node& node) {
    return node.op == Op::kStore || node.op == Op::kAccumulate;
  }

  // The number of parts in which `value` is made; 0 if it is made whole.
  int64_t PartsOf(ValueId value) const { return parts_[definitions_[value]]; }

  bool MayBeParted(OpIndex index) const {
    return parts_[index] == 0 && !whole_[index] && !ordered_[index] && parents_[index] < 0;
  }

  bool MayBePartedWrite(OpIndex index) const {
    const Node& node = program_.nodes[index];
    return IsWrite(node) && MayBeParted(index) && !program_.types[node.operands[0]].dims.empty() &&
           RowBytes(program_.types[node.operands[0]], node.attributes.Ints(A::kStrides));
  }

  // At most so many ops come of it.
  size_t Ops() const {
    size_t ops = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Node& node = program_.nodes[i];
      const auto parts = static_cast<size_t>(parts_[i]);
      ops += parts == 0 ? 1 : parts * (1 + node.operands.size()) + node.results;
    }
    return ops;
  }
  void KeepOnlyTransfers() {
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!IsTransfer(program_.nodes[i])) parts_[i] = 0;
    }
  }

  // RowOperands of an op that is done in parts.
  RowOperands RowsOf(const Node& node) const {
    if (IsTransfer(node) || IsWrite(node)) return RowOperands(node.operands.size(), 0);
    return *rows_.Of(node);
  }

  // Whether `user` is done in parts, and part i of it needs no more of its operand `value` than
  // part i.
  bool TakesParts(OpIndex user, ValueId value) const {
    const Node& node = program_.nodes[user];
    if (parts_[user] == 0) return false;
    const RowOperands by_rows = RowsOf(node);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (node.operands[i] == value && by_rows[i] != 0) return false;
    }
    return true;
  }

  // An op all of whose results are needed in parts is done in parts.
  bool MarkByUses(OpIndex index) {
    const Node& node = program_.nodes[index];
    const bool pure = InfoOf(node.op).effect == Effect::kPure || node.op == Op::kInput;
    if (!pure || !MayBeParted(index) || !rows_.Of(node)) return false;
    int64_t parts = 0;
    for (ValueId value = node.first_result; value < node.first_result + node.results; ++value) {
      if (yielded_[value]) return false;
      for (const OpIndex user : uses_[value]) {
        if (MayBePartedWrite(user)) continue;
        if (!TakesParts(user, value) || (parts != 0 && parts_[user] != parts)) return false;
        parts = parts_[user];
      }
    }
    if (parts == 0 || program_.types[node.first_result].dims[0] < parts) return false;
    parts_[index] = parts;
    return true;
  }

  // So is an op on what is made in parts.
  bool MarkByOperands(OpIndex index) {
    const Node& node = program_.nodes[index];
    const bool write = MayBePartedWrite(index);
    if (!write && (InfoOf(node.op).effect != Effect::kPure || !MayBeParted(index))) return false;
    const std::optional<RowOperands> by_rows = write ? RowOperands{0} : rows_.Of(node);
    if (!by_rows) return false;
    int64_t parts = 0;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const int64_t made = PartsOf(node.operands[i]);
      if (made == 0) continue;
      if ((*by_rows)[i] != 0 || (parts != 0 && made != parts)) return false;
      parts = made;
    }
    parts_[index] = parts;
    return parts != 0;
  }

  // Whether pending ops have to be over before op `index`: it, or its body, uses the whole of what
  // they make, or it has another number of parts.
  bool NeedsPending(OpIndex index) const {
    if (pending_.empty()) return false;
    const Node& node = program_.nodes[index];
    const int64_t parts = parts_[index];
    if (node.op == Op::kRepeat || (parts != 0 && parts_[pending_[0]] != parts)) return true;
    const RowOperands by_rows = parts == 0 ? RowOperands(node.operands.size(), kAll) : RowsOf(node);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const OpIndex definition = definitions_[node.operands[i]];
      if (by_rows[i] != 0 &&
          std::find(pending_.begin(), pending_.end(), definition) != pending_.end()) {
        return true;
      }
    }
    return false;
  }

  // The pending ops: part 0 of all of them, then part 1, and so on, so that a part is over, and on
  // its way, before the next one begins.
  void PartPending() {
    if (pending_.empty()) return;
    for (int64_t part = 0; part < parts_[pending_[0]]; ++part) {
      for (const OpIndex index : pending_) Part(index, part);
    }
    for (const OpIndex index : std::exchange(pending_, {})) {
      const Node& node = program_.nodes[index];
      for (uint32_t i = 0; i < node.results; ++i) Join(node.first_result + i);
      SetOrigin(index);
    }
  }

  void Part(OpIndex index, int64_t part) {
    const Node& old = program_.nodes[index];
    const int64_t parts = parts_[index];
    const RowOperands by_rows = RowsOf(old);
    Node node = old;
    for (size_t i = 0; i < old.operands.size(); ++i) {
      node.operands[i] = by_rows[i] == kAll ? copier_.values[old.operands[i]]
                                            : PieceOf(old.operands[i], by_rows[i], parts, part);
    }
    SetAttributes(node, program_.types[old.results == 0 ? old.operands[0] : old.first_result],
                  parts, part);
    std::vector<TensorType> types(program_.ResultTypes(old).begin(),
                                  program_.ResultTypes(old).end());
    for (TensorType& type : types) {
      type.dims[0] = BeginOf(type.dims[0], parts, part + 1) - BeginOf(type.dims[0], parts, part);
    }
    const OpIndex put = copier_.to().Append(std::move(node), std::move(types));
    SetOrigin(index);
    for (uint32_t i = 0; i < old.results; ++i) {
      pieces_[old.first_result + i].push_back(copier_.to().Result(put, i));
    }
  }

  // Part number `part` of `parts` of `value`, along `dimension`.
  ValueId PieceOf(ValueId value, int64_t dimension, int64_t parts, int64_t part) {
    if (dimension == 0 && PartsOf(value) == parts) return pieces_[value][part];
    const auto [at, fresh] = slices_.try_emplace({value, dimension, parts, part}, 0);
    if (!fresh) return at->second;
    TensorType type = program_.types[value];
    std::vector<int64_t> start(type.dims.size(), 0), limit = type.dims;
    start[dimension] = BeginOf(type.dims[dimension], parts, part);
    limit[dimension] = BeginOf(type.dims[dimension], parts, part + 1);
    const Node& made_by = program_.nodes[definitions_[value]];
    if (IsReadInPlace(made_by)) {
      type.dims[dimension] = limit[dimension] - start[dimension];
      at->second = ReadPart(made_by, dimension, start[dimension], std::move(type));
      return at->second;
    }
    Node slice;
    slice.op = Op::kSlice;
    slice.operands = {copier_.values[value]};
    slice.attributes = {{A::kStart, std::move(start)}, {A::kLimit, std::move(limit)}};
    at->second = copier_.to().Result(copier_.to().Append(std::move(slice)));
    return at->second;
  }

  // An input of whole bytes, a part of which is an input too.
  bool IsReadInPlace(const Node& node) const {
    const OpIndex index = definitions_[node.first_result];
    return node.op == Op::kInput && !whole_[index] && !ordered_[index] && parents_[index] < 0 &&
           InfoOf(program_.types[node.first_result].dtype).bits >= 8;
  }
  ValueId ReadPart(const Node& input, int64_t dimension, int64_t begin, TensorType type) {
    const std::vector<int64_t>& dims = program_.types[input.first_result].dims;
    const auto written = input.attributes.Ints(A::kStrides);
    std::vector<int64_t> strides(written.begin(), written.end());
    if (strides.empty()) {
      strides.assign(dims.size(), 1);
      for (size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
    }
    const int64_t bytes = static_cast<int64_t>(InfoOf(type.dtype).bits / 8);
    Node node = input;
    node.attributes.Set(A::kOffset,
                        node.attributes.Int(A::kOffset) + begin * strides[dimension] * bytes);
    if (dimension > 0) node.attributes.Set(A::kStrides, std::move(strides));
    const OpIndex put = copier_.to().Append(std::move(node), {std::move(type)});
    SetOrigin(definitions_[input.first_result]);
    return copier_.to().Result(put);
  }

  // What differs from the whole op's attributes.
  static void SetAttributes(Node& node, const TensorType& whole, int64_t parts, int64_t part) {
    Attributes attributes;
    for (const auto& [attribute, value] : node.attributes.entries()) {
      if (attribute != A::kParts) attributes.Set(attribute, value);
    }
    const int64_t begin = BeginOf(whole.dims[0], parts, part);
    if (IsTransfer(node)) {
      attributes.Set(A::kKey, absl::StrCat(attributes.Bytes(A::kKey), "/", part));
    } else if (node.op == Op::kInput || IsWrite(node)) {
      attributes.Set(A::kOffset, attributes.Int(A::kOffset) +
                                     begin * *RowBytes(whole, node.attributes.Ints(A::kStrides)));
    } else if (node.op == Op::kSlice) {
      const auto old = attributes.Ints(A::kLimit);
      std::vector<int64_t> limit(old.begin(), old.end());
      limit[0] = BeginOf(whole.dims[0], parts, part + 1) - begin;
      attributes.Set(A::kLimit, std::move(limit));
    }
    node.attributes = std::move(attributes);
  }

  // The whole of what was made in parts, if somebody needs it.
  void Join(ValueId value) {
    const auto whole = [&](OpIndex user) {
      return !TakesParts(user, value) || parts_[user] != PartsOf(value);
    };
    if (!yielded_[value] && std::none_of(uses_[value].begin(), uses_[value].end(), whole)) return;
    Node node;
    node.op = Op::kConcatenate;
    node.operands = pieces_[value];
    node.attributes = {{A::kDimension, int64_t{0}}};
    copier_.values[value] = copier_.to().Result(copier_.to().Append(std::move(node)));
  }

  // All ops of the copy that have no origin yet were made of `index`.
  void SetOrigin(OpIndex index) { origins_.resize(copier_.to().nodes.size(), index); }

  const Program& program_;
  const std::vector<bool>& whole_;
  const Rows rows_;
  Copier copier_;
  const std::vector<int64_t> parents_;
  const std::vector<OpIndex> definitions_;
  std::vector<std::vector<OpIndex>> uses_;    // by value
  std::vector<bool> yielded_;                 // by value
  const std::vector<bool> ordered_;           // OrderedOps
  std::vector<int64_t> parts_;                // by op: how many it is done in; 0: it stays whole
  std::vector<OpIndex> pending_;              // ops of one number of parts, not in the copy yet
  std::vector<std::vector<ValueId>> pieces_;  // by value that is made in parts: of the copy
  // By value, dimension, parts and part.
  std::map<std::tuple<ValueId, int64_t, int64_t, int64_t>, ValueId> slices_;
  std::vector<OpIndex> origins_;  // by op of the copy
};

}  // namespace

Program PartTransfers(const Program& program) {
  constexpr int kTries = 8;
  std::vector<bool> whole(program.nodes.size());
  for (int i = 0; i < kTries; ++i) {
    Parting parting(program, whole);
    Program parted = parting.Run();
    // Rows may be written over others that are read: what is whole keeps them in order.
    const std::vector<Problem> problems = Verify(parted);
    if (problems.empty()) return parted;
    for (const Problem& problem : problems) {
      if (problem.op >= 0) whole[parting.OriginOf(static_cast<OpIndex>(problem.op))] = true;
    }
  }
  whole.assign(whole.size(), true);
  return Parting(program, whole).Run();
}

}  // namespace ferry::compute
