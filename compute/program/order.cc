// SPDX-License-Identifier: Apache-2.0
// Which ops come after which, and whether that suffices for what they do to buffers. The body of a
// repeat is looked at by itself (its trips follow each other), and as one op of the block around
// it.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/program/problem_list.h"

namespace ferry::compute {
namespace {

struct Touch {
  OpIndex op;    // that does it
  size_t place;  // of the op of the block that it is, or is in
  BufferRange range;
};

// The ops of one block by their place in it, and which of them come after which.
class Block {
 public:
  size_t AddOp() {
    before_.emplace_back(before_.size() / kBits + 1);
    return before_.size() - 1;
  }
  // `later` comes after `earlier`, and what that comes after. The edges of an op are added when
  // those of all above it have been.
  void AddEdge(size_t earlier, size_t later) {
    if (IsAfter(earlier, later)) return;
    std::vector<uint64_t>& before = before_[later];
    before[earlier / kBits] |= uint64_t{1} << (earlier % kBits);
    for (size_t i = 0; i < before_[earlier].size(); ++i) before[i] |= before_[earlier][i];
  }
  bool IsAfter(size_t earlier, size_t later) const {
    return (before_[later][earlier / kBits] >> (earlier % kBits) & 1) != 0;
  }

  std::vector<Touch> touches;  // in the order of the text

 private:
  static constexpr size_t kBits = 64;
  std::vector<std::vector<uint64_t>> before_;  // by place, a bit for each place up to it
};

std::string RangeText(const Program& program, const BufferRange& range) {
  return absl::StrCat(range.begin, " to ", range.end, " of @", program.buffers[range.buffer].name);
}

void CheckPair(const Program& program, const Block& block, const Touch& earlier, const Touch& later,
               ProblemList& problems) {
  const BufferRange& a = earlier.range;
  const BufferRange& b = later.range;
  if (earlier.place == later.place || a.buffer != b.buffer || (!a.writes && !b.writes) ||
      std::max(a.begin, b.begin) >= std::min(a.end, b.end)) {
    return;
  }
  const auto verb = [](const BufferRange& range) { return range.writes ? "writes" : "reads"; };
  const auto both = [&] {
    const Node& other = program.nodes[earlier.op];
    return absl::StrCat(verb(b), " bytes ", RangeText(program, b), ", op ", earlier.op, " ",
                        InfoOf(other.op).name,
                        other.label.empty() ? "" : absl::StrCat(" '", ShownLabel(other.label), "'"),
                        " ", verb(a), " ", RangeText(program, a));
  };
  if (!block.IsAfter(earlier.place, later.place)) {
    problems.Add(later.op, a.writes && b.writes ? "two writers" : "order",
                 absl::StrCat(both(),
                              ", and neither is after the other: say which is, with "
                              "'^mark: ' before the first and 'after ^mark' in the second"),
                 Reason::kRangeOverlap);
  } else if (program.nodes[earlier.op].op == Op::kInput && b.writes &&
             !program.buffers[b.buffer].donated) {
    problems.Add(later.op, "in place", absl::StrCat(both(), ", and the buffer is not donated"),
                 Reason::kRangeOverlap);
  }
}

}  // namespace

void CheckOrder(const Program& program, const UnclearOps& unclear, ProblemList& problems) {
  const std::vector<int64_t> parents = ParentsOf(program);
  const std::vector<OpIndex> definitions = DefinitionsOf(program);
  std::map<int64_t, Block> blocks;  // by the repeat whose body it is
  std::vector<size_t> places;       // by op, in its block
  const auto depends = [&](OpIndex op, OpIndex on) {
    // In the innermost block that has, or has around, both.
    for (int64_t inner = op; inner >= 0; inner = parents[inner]) {
      Block& block = blocks.at(parents[inner]);
      int64_t outer = on;
      while (outer >= 0 && parents[outer] != parents[inner]) outer = parents[outer];
      if (outer < 0) continue;
      if (outer != inner) block.AddEdge(places[outer], places[inner]);
      return;
    }
  };
  for (OpIndex i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    places.push_back(blocks[parents[i]].AddOp());
    if (unclear[i]) {
      for (size_t place = 0; place < places[i]; ++place) {
        blocks.at(parents[i]).AddEdge(place, places[i]);
      }
      continue;
    }
    for (const OpIndex other : node.after) depends(i, other);
    for (const ValueId value : node.operands) depends(i, definitions[value]);
    // Yielded values that are of other blocks are of blocks around, above the repeat.
    for (const ValueId value : node.yielded) {
      if (definitions[value] < i) depends(i, definitions[value]);
    }
    for (const BufferRange& range : RangesOf(program, node)) {
      for (int64_t at = i; at >= 0; at = parents[at]) {
        blocks.at(parents[at]).touches.push_back({i, places[at], range});
      }
    }
  }
  for (const auto& [repeat, block] : blocks) {
    for (size_t later = 1; later < block.touches.size(); ++later) {
      for (size_t earlier = 0; earlier < later; ++earlier) {
        if (problems.full()) return;
        CheckPair(program, block, block.touches[earlier], block.touches[later], problems);
      }
    }
  }
}

}  // namespace ferry::compute
