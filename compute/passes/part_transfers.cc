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

// By operand of an op: which dimension of it are the rows, dimension 0, of the results. kAll: for
// each row all of the operand is needed.
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
  // `transfers_only`: nothing else is done in parts.
  Parting(const Program& program, bool transfers_only)
      : program_(program),
        transfers_only_(transfers_only),
        rows_(program),
        copier_(program),
        parents_(ParentsOf(program)),
        definitions_(DefinitionsOf(program)),
        uses_(program.types.size()),
        yielded_(program.types.size()),
        ordered_(program.nodes.size()),
        parts_(program.nodes.size()),
        pieces_(program.types.size()) {
    for (OpIndex i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      for (const ValueId value : node.operands) uses_[value].push_back(i);
      for (const ValueId value : node.yielded) yielded_[value] = true;
      for (const OpIndex other : node.after) ordered_[i] = ordered_[other] = true;
      if (IsTransfer(node)) parts_[i] = node.attributes.Int(A::kParts);
    }
  }

  Program Run() {
    for (bool marked = !transfers_only_; marked;) {
      marked = false;
      for (size_t i = program_.nodes.size(); i-- > 0;) marked |= MarkByUses(i);
      for (size_t i = 0; i < program_.nodes.size(); ++i) marked |= MarkByOperands(i);
    }
    if (Ops() > kMaxOps) KeepOnlyTransfers();
    return copier_.Run([&](OpIndex index) {
      parts_[index] == 0 ? void(copier_.Put(index, copier_.Renumbered(index))) : Part(index);
    });
  }

 private:
  static bool IsTransfer(const Node& node) { return node.op == Op::kSend || node.op == Op::kRecv; }
  static bool IsWrite(const Node& node) {
    return node.op == Op::kStore || node.op == Op::kAccumulate;
  }

  // What `value` is made in; 0: in whole.
  int64_t PartsOf(ValueId value) const { return parts_[definitions_[value]]; }

  bool MayBeParted(OpIndex index) const {
    return parts_[index] == 0 && !ordered_[index] && parents_[index] < 0;
  }

  bool MayBePartedWrite(OpIndex index) const {
    const Node& node = program_.nodes[index];
    return IsWrite(node) && MayBeParted(index) &&
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

  // By operand, for an op that is made in parts.
  RowOperands RowsOf(const Node& node) const {
    if (IsTransfer(node) || IsWrite(node)) return RowOperands(node.operands.size(), 0);
    return *rows_.Of(node);
  }

  // Is `value` nowhere needed by `user` but in parts? What an op of its own parts would make of it
  // counts as well.
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

  // Part number `part` of `parts` of `value`, along `dimension`.
  ValueId PieceOf(ValueId value, int64_t dimension, int64_t parts, int64_t part) {
    if (dimension == 0 && PartsOf(value) == parts) return pieces_[value][part];
    const auto [at, fresh] = slices_.try_emplace({value, dimension, parts, part}, 0);
    if (!fresh) return at->second;
    const std::vector<int64_t>& dims = program_.types[value].dims;
    std::vector<int64_t> start(dims.size(), 0), limit = dims;
    start[dimension] = BeginOf(dims[dimension], parts, part);
    limit[dimension] = BeginOf(dims[dimension], parts, part + 1);
    Node slice;
    slice.op = Op::kSlice;
    slice.operands = {copier_.values[value]};
    slice.attributes = {{A::kStart, std::move(start)}, {A::kLimit, std::move(limit)}};
    at->second = copier_.to().Result(copier_.to().Append(std::move(slice)));
    return at->second;
  }

  // What differs from the whole op's attributes.
  void SetAttributes(Node& node, const TensorType& whole, int64_t parts, int64_t part) const {
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

  void Part(OpIndex index) {
    const Node& old = program_.nodes[index];
    const int64_t parts = parts_[index];
    const RowOperands by_rows = RowsOf(old);
    const TensorType& whole = program_.types[old.results == 0 ? old.operands[0] : old.first_result];
    for (int64_t part = 0; part < parts; ++part) {
      Node node = copier_.Renumbered(index);
      for (size_t i = 0; i < old.operands.size(); ++i) {
        if (by_rows[i] == kAll) continue;
        node.operands[i] = PieceOf(old.operands[i], by_rows[i], parts, part);
      }
      SetAttributes(node, whole, parts, part);
      std::vector<TensorType> types(program_.ResultTypes(old).begin(),
                                    program_.ResultTypes(old).end());
      for (TensorType& type : types) {
        type.dims[0] = BeginOf(type.dims[0], parts, part + 1) - BeginOf(type.dims[0], parts, part);
      }
      const OpIndex put = copier_.to().Append(std::move(node), std::move(types));
      for (uint32_t i = 0; i < old.results; ++i) {
        pieces_[old.first_result + i].push_back(copier_.to().Result(put, i));
      }
    }
    for (uint32_t i = 0; i < old.results; ++i) Join(old.first_result + i);
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

  const Program& program_;
  const bool transfers_only_;
  const Rows rows_;
  Copier copier_;
  const std::vector<int64_t> parents_;
  const std::vector<OpIndex> definitions_;
  std::vector<std::vector<OpIndex>> uses_;    // by value
  std::vector<bool> yielded_;                 // by value
  std::vector<bool> ordered_;                 // by op: it takes part in an explicit order
  std::vector<int64_t> parts_;                // by op: how many it is done in; 0: it stays whole
  std::vector<std::vector<ValueId>> pieces_;  // by value that is made in parts: of the copy
  // By value, dimension, parts and part.
  std::map<std::tuple<ValueId, int64_t, int64_t, int64_t>, ValueId> slices_;
};

}  // namespace

Program PartTransfers(const Program& program) {
  Program parted = Parting(program, /*transfers_only=*/false).Run();
  // Rows may be written over others that are read: what is whole keeps them in order.
  if (Verify(parted).empty()) return parted;
  return Parting(program, /*transfers_only=*/true).Run();
}

}  // namespace ferry::compute
