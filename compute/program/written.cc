// SPDX-License-Identifier: Apache-2.0
// What is read though nothing was ever written to it. It is followed from each `empty` through ops
// that hand the whole of it on; what is put together of several values counts as written in part.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/program/problem_list.h"

namespace ferry::compute {
namespace {

// Ops that are looked at and values that are compared, loops being followed trip by trip: what is
// not known by then is not reported.
constexpr uint64_t kMaxWork = uint64_t{1} << 22;

// The `empty` that a value is, as far as it is known that it is nothing else.
using Origin = std::optional<OpIndex>;

class Follower {
 public:
  Follower(const Program& program, const UnclearOps& unclear, ProblemList& problems)
      : program_(program), unclear_(unclear), problems_(problems), origins_(program.types.size()) {}

  void Block(size_t begin, size_t end) {
    for (size_t i = begin; i < end && !problems_.full(); i += 1 + program_.nodes[i].body) {
      Follow(static_cast<OpIndex>(i));
    }
  }

 private:
  // Of how many operands, from the first, the op says no more than where their elements go.
  static size_t Moved(const Node& node) {
    switch (node.op) {
      case Op::kReshape:
      case Op::kTranspose:
      case Op::kBroadcastInDim:
      case Op::kSlice:
      case Op::kReverse:
      case Op::kBitcastConvert:
      case Op::kDynamicSlice:
      case Op::kGatherRows:
        return 1;
      case Op::kBarrier:
      case Op::kConcatenate:
      case Op::kRepeat:
        return node.operands.size();
      default:
        return 0;
    }
  }

  bool Spend(uint64_t work) {
    work_ -= std::min(work, work_);
    return work_ > 0;
  }

  void Follow(OpIndex index) {
    if (!Spend(1) || unclear_[index]) return;
    const Node& node = program_.nodes[index];
    if (node.op == Op::kEmpty) {
      if (*ElementsOf(program_.types[node.first_result]) > 0) origins_[node.first_result] = index;
      return;
    }
    const size_t moved = Moved(node);
    for (size_t i = moved; i < node.operands.size(); ++i) {
      // A pad is between elements, a choice leaves the others.
      const bool in_part = (node.op == Op::kPad && i == 0) || (node.op == Op::kSelect && i > 0);
      const Origin& origin = origins_[node.operands[i]];
      if (origin && !in_part && reported_.insert({index, i}).second) {
        problems_.Add(
            index, "written",
            absl::StrCat("operand ", i, " is read, and nothing was written to it since op ",
                         *origin, " empty: begin with a constant"));
      }
    }
    if (node.op == Op::kRepeat) return Repeat(index);
    if (moved == 1) origins_[node.first_result] = origins_[node.operands[0]];
    for (size_t i = 0; node.op == Op::kBarrier && i < moved; ++i) {
      origins_[node.first_result + i] = origins_[node.operands[i]];
    }
  }

  // Trip by trip, until one is given what another was given.
  void Repeat(OpIndex index) {
    const Node& node = program_.nodes[index];
    const size_t carried = node.operands.size();
    const auto trips = static_cast<uint64_t>(node.attributes.Int(Attribute::kTrips));
    std::vector<std::vector<Origin>> given(1);  // by trip
    for (const ValueId value : node.operands) given[0].push_back(origins_[value]);
    uint64_t last = 0;  // of the trips that differ, the one whose beginning is the end of all
    for (uint64_t trip = 0; trip < trips; ++trip) {
      std::copy(given[trip].begin(), given[trip].end(),
                origins_.begin() + node.first_parameter() + 1);
      Block(index + 1, size_t{index} + 1 + node.body);
      if (!Spend(carried * given.size() + 1)) return;
      std::vector<Origin> next;
      for (const ValueId value : node.yielded) next.push_back(origins_[value]);
      const auto same = std::find(given.begin(), given.end(), next);
      if (same != given.end()) {
        const auto first = static_cast<uint64_t>(same - given.begin());
        last = first + (trips - first) % (trip + 1 - first);
        break;
      }
      given.push_back(std::move(next));
      last = trip + 1;
    }
    for (size_t i = 0; i < carried; ++i) origins_[node.first_result + i] = given[last][i];
  }

  const Program& program_;
  const UnclearOps& unclear_;
  ProblemList& problems_;
  std::vector<Origin> origins_;  // by value
  uint64_t work_ = kMaxWork;     // that is left
  std::set<std::pair<OpIndex, size_t>> reported_;
};

}  // namespace

void CheckWritten(const Program& program, const UnclearOps& unclear, ProblemList& problems) {
  const bool any = std::any_of(program.nodes.begin(), program.nodes.end(),
                               [](const Node& node) { return node.op == Op::kEmpty; });
  if (any) Follower(program, unclear, problems).Block(0, program.nodes.size());
}

}  // namespace ferry::compute
