// SPDX-License-Identifier: Apache-2.0
// A move of a move, back to the value at which it begins: where the two are one op, they become it.
// The same for products of moves.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compute/passes/copier.h"
#include "compute/passes/passes.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr int64_t kNowhere = -1;

// What one move, or several in a row, make of a value.
struct Moved {
  bool in_order = false;    // the result has each element once, in the value's row-major order
  bool transposes = false;  // one of the moves is a transpose
  // By dimension of the value: which dimension of the result it has become, kNowhere if its size is
  // 1. Not set if a move splits or joins dimensions.
  std::optional<std::vector<int64_t>> places;
};

bool AreInOrder(const std::vector<int64_t>& places) {
  int64_t last = kNowhere;
  for (const int64_t place : places) {
    if (place == kNowhere) continue;
    if (place < last) return false;
    last = place;
  }
  return true;
}

// Does each element of the result come from another one?
bool TakesEachOnce(const std::vector<int64_t>& places, const TensorType& to) {
  for (size_t d = 0; d < to.dims.size(); ++d) {
    const auto place = static_cast<int64_t>(d);
    if (to.dims[d] != 1 && std::find(places.begin(), places.end(), place) == places.end()) {
      return false;
    }
  }
  return true;
}

// Of a reshape: nothing if it does more than add and remove dimensions of 1.
std::optional<std::vector<int64_t>> PlacesOfReshape(const TensorType& from, const TensorType& to) {
  std::vector<int64_t> places(from.dims.size(), kNowhere);
  size_t next = 0;
  const auto skip = [&] {
    while (next < to.dims.size() && to.dims[next] == 1) ++next;
  };
  for (size_t d = 0; d < from.dims.size(); ++d) {
    if (from.dims[d] == 1) continue;
    skip();
    if (next == to.dims.size() || to.dims[next] != from.dims[d]) return std::nullopt;
    places[d] = static_cast<int64_t>(next++);
  }
  skip();
  if (next != to.dims.size()) return std::nullopt;
  return places;
}

bool IsJoined(Op op) {
  return op == Op::kReshape || op == Op::kBroadcastInDim || op == Op::kTranspose;
}

// What an op for which IsJoined() does.
Moved MovedBy(const Node& node, const TensorType& from, const TensorType& to) {
  if (node.op == Op::kReshape) return {true, false, PlacesOfReshape(from, to)};
  std::vector<int64_t> places(from.dims.size(), kNowhere);
  const bool transposes = node.op == Op::kTranspose;
  const auto list = node.attributes.Ints(transposes ? A::kPermutation : A::kDimensions);
  for (size_t i = 0; i < list.size(); ++i) {
    const auto d = transposes ? static_cast<size_t>(list[i]) : i;
    if (from.dims[d] != 1) places[d] = transposes ? static_cast<int64_t>(i) : list[i];
  }
  const bool in_order = AreInOrder(places) && TakesEachOnce(places, to);
  return {in_order, transposes, std::move(places)};
}

// First `a`, then `b`, which makes a value of type `to`.
Moved Joined(const Moved& a, const Moved& b, const TensorType& to) {
  Moved both{a.in_order && b.in_order, a.transposes || b.transposes, std::nullopt};
  if (!a.places || !b.places) return both;
  both.places = *a.places;
  for (int64_t& place : *both.places) {
    if (place != kNowhere) place = (*b.places)[static_cast<size_t>(place)];
  }
  both.in_order = AreInOrder(*both.places) && TakesEachOnce(*both.places, to);
  return both;
}

// Dimensions of 1 have to go somewhere too: each to the first that is free, after the one before it
// if there is such a one.
bool PlaceOnes(std::vector<int64_t>& places, size_t rank) {
  std::vector<bool> taken(rank);
  for (const int64_t place : places) {
    if (place != kNowhere) taken[static_cast<size_t>(place)] = true;
  }
  int64_t last = kNowhere;
  for (int64_t& place : places) {
    if (place == kNowhere) {
      auto at = std::find(taken.begin() + last + 1, taken.end(), false);
      if (at == taken.end()) at = std::find(taken.begin(), taken.end(), false);
      if (at == taken.end()) return false;
      *at = true;
      place = at - taken.begin();
    }
    last = place;
  }
  return true;
}

// The op that does it; nothing if none does.
std::optional<Node> OpOf(const Moved& moved, const TensorType& from, const TensorType& to) {
  Node node;
  node.results = 1;
  if (moved.in_order) {
    node.op = Op::kReshape;
    return node;
  }
  if (!moved.places) return std::nullopt;
  std::vector<int64_t> places = *moved.places;
  if (!PlaceOnes(places, to.dims.size())) return std::nullopt;
  if (!TakesEachOnce(*moved.places, to)) {
    // A transpose is a kernel that reads as fast as it writes; a broadcast may not be, if it has to
    // read across rows.
    if (moved.transposes && !AreInOrder(*moved.places)) return std::nullopt;
    node.op = Op::kBroadcastInDim;
    node.attributes.Set(A::kDimensions, std::move(places));
    return node;
  }
  if (from.dims.size() != to.dims.size()) return std::nullopt;
  std::vector<int64_t> permutation(places.size());
  for (size_t d = 0; d < places.size(); ++d) {
    permutation[static_cast<size_t>(places[d])] = static_cast<int64_t>(d);
  }
  node.op = Op::kTranspose;
  node.attributes.Set(A::kPermutation, std::move(permutation));
  return node;
}

// Whether a dense tensor is matrices at equal distances, whose rows or columns have no gaps: what a
// library multiplies. The lists name the tensor's dimensions that number the matrices, their rows
// and their columns.
bool IsMatrices(const TensorType& type, const std::vector<int64_t>& batch,
                const std::vector<int64_t>& rows, const std::vector<int64_t>& columns) {
  std::vector<int64_t> places(type.dims.size(), kNowhere);  // by dimension, those of 1 left out
  int64_t last = kNowhere;
  for (size_t d = 0; d < type.dims.size(); ++d) {
    if (type.dims[d] != 1) places[d] = ++last;
  }
  for (const std::vector<int64_t>* list : {&batch, &rows, &columns}) {
    int64_t before = kNowhere;
    for (const int64_t d : *list) {
      const int64_t place = places[static_cast<size_t>(d)];
      if (place == kNowhere) continue;
      if (before != kNowhere && place != before + 1) return false;
      before = place;
    }
    if (list == &batch && before != kNowhere && before == last) return false;
  }
  return true;
}

class MoveJoiner {
 public:
  explicit MoveJoiner(const Program& program)
      : program_(program),
        fixed_(FixedOps(program)),
        uses_(program.types.size()),
        copier_(program) {
    for (const Node& node : program.nodes) {
      for (const std::vector<ValueId>* list : {&node.operands, &node.yielded}) {
        std::vector<ValueId> values = *list;
        std::sort(values.begin(), values.end());
        values.erase(std::unique(values.begin(), values.end()), values.end());
        for (const ValueId value : values) ++uses_[value];
      }
    }
  }

  Program Run() {
    return copier_.Run([&](OpIndex index) { Copy(index); });
  }

 private:
  const TensorType& TypeOf(ValueId value) { return copier_.to().types[value]; }

  void Copy(OpIndex index) {
    const Node& old = program_.nodes[index];
    Node node = copier_.Renumbered(index);
    if (!fixed_[index] && old.op == Op::kDotGeneral) {
      for (const size_t side : {0, 1}) JoinFactor(node, side);
    }
    if (old.op == Op::kRepeat) converts_.clear();  // a body does once a trip what is put there
    if (fixed_[index] || !IsJoined(old.op)) {
      const OpIndex put = copier_.Put(index, std::move(node));
      if (!fixed_[index] && old.op == Op::kConvert && uses_[old.first_result] == 1) {
        converts_[copier_.to().Result(put)] = put;
      }
      return;
    }
    const TensorType& type = program_.types[old.first_result];
    Join(node, type);
    if (node.op == Op::kReshape && TypeOf(node.operands[0]) == type) {
      copier_.values[old.first_result] = node.operands[0];
      return;
    }
    const OpIndex put = copier_.Put(index, std::move(node));
    moves_[copier_.to().Result(put)] = put;
  }

  // Makes `node`, a move, one of the value that is as far away as can be.
  void Join(Node& node, const TensorType& type) {
    ValueId from = node.operands[0];
    Moved moved = MovedBy(node, TypeOf(from), type);
    std::optional<Node> joined;
    if (moved.in_order) joined = OpOf(moved, TypeOf(from), type);
    if (joined) joined->operands = {from};
    for (auto at = moves_.find(from); at != moves_.end(); at = moves_.find(from)) {
      const Node& before = copier_.to().nodes[at->second];
      moved = Joined(MovedBy(before, TypeOf(before.operands[0]), TypeOf(from)), moved, type);
      from = before.operands[0];
      std::optional<Node> one = OpOf(moved, TypeOf(from), type);
      if (!one) continue;
      joined = std::move(one);
      joined->operands = {from};
    }
    if (!joined) return;
    node.op = joined->op;
    node.operands = std::move(joined->operands);
    node.attributes = std::move(joined->attributes);
  }

  // Makes a product of a transpose one of what is transposed, also if the transpose is converted on
  // the way, for this product alone.
  void JoinFactor(Node& product, size_t side) {
    const auto convert = converts_.find(product.operands[side]);
    const bool converts = convert != converts_.end();
    const auto at = moves_.find(converts ? copier_.to().nodes[convert->second].operands[0]
                                         : product.operands[side]);
    if (at == moves_.end()) return;
    const Node& transpose = copier_.to().nodes[at->second];
    if (transpose.op != Op::kTranspose) return;
    const auto permutation = transpose.attributes.Ints(A::kPermutation);
    const A lists[] = {side == 0 ? A::kLhsBatch : A::kRhsBatch,
                       side == 0 ? A::kLhsContract : A::kRhsContract};
    std::vector<int64_t> rows(permutation.begin(), permutation.end());
    std::vector<int64_t> moved[2];
    for (const size_t i : {0, 1}) {
      for (const int64_t d : product.attributes.Ints(lists[i])) {
        moved[i].push_back(permutation[static_cast<size_t>(d)]);
        rows.erase(std::find(rows.begin(), rows.end(), moved[i].back()));
      }
    }
    if (!std::is_sorted(rows.begin(), rows.end()) ||
        !IsMatrices(TypeOf(transpose.operands[0]), moved[0], rows, moved[1])) {
      return;
    }
    for (const size_t i : {0, 1}) {
      if (!moved[i].empty()) product.attributes.Set(lists[i], std::move(moved[i]));
    }
    const ValueId from = transpose.operands[0];
    product.operands[side] = converts ? Converted(convert->second, from) : from;
  }

  // `from`, converted as the copy's op `convert` does.
  ValueId Converted(OpIndex convert, ValueId from) {
    Node node = copier_.to().nodes[convert];
    node.operands = {from};
    TensorType type = TypeOf(from);
    type.dtype = TypeOf(copier_.to().Result(convert)).dtype;
    return copier_.to().Result(copier_.to().Append(std::move(node), {std::move(type)}));
  }

  const Program& program_;
  const std::vector<bool> fixed_;
  std::vector<uint32_t> uses_;  // by value of the program: how many ops take it
  Copier copier_;
  std::map<ValueId, OpIndex> moves_;  // of the copy: values that may be gone round, by their ops
  // Of the copy and of the body that is being copied: values that one op takes, by the converts
  // that make them.
  std::map<ValueId, OpIndex> converts_;
};

}  // namespace

Program JoinMoves(const Program& program) { return MoveJoiner(program).Run(); }

}  // namespace ferry::compute
