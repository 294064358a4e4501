// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/column_tile.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "compute/cuda/gpu_plan.h"
#include "compute/plan/rows.h"

namespace ferry::compute {
namespace {

using Kind = KernelShape::Kind;
using Level = KernelShape::Level;
using Value = KernelShape::Value;

constexpr uint64_t kLeastNeighbours = 8;
constexpr uint64_t kMostWidth = 32;  // as many as a warp has threads
constexpr uint64_t kSectorBits = 256;
// A thread of a mere reduction has 16 loads under way, of 4 bytes in most cases, and begins the
// next when all are over.
constexpr uint64_t kWantedThreads = 4 * kThreadsOfGpu;
// Bounds of what is written out for each lane of a thread, so that registers hold it. Where there
// is more of it than kMostWideBits, or more than 4 ops, a thread has half as many lanes, at most;
// of more than 8 ops as few as let 32 bytes of neighbours be read at a time.
constexpr int kMostLaneBits = 128;    // of one lane of all reductions
constexpr int kMostWideBits = 128;    // of one lane, and one element of all that is read, together
constexpr int kMostUnrolledOps = 64;  // of the elements that a thread reads before it computes

uint64_t Ceil(uint64_t count, uint64_t part) { return count / part + (count % part != 0 ? 1 : 0); }

// Whether the view is a broadcast of so few elements that it does not matter how they lie.
bool IsReadAgain(const View& view) {
  uint64_t elements = 1;
  for (size_t d = 0; d < view.dims.size(); ++d) {
    if (view.strides[d] != 0) elements *= static_cast<uint64_t>(view.dims[d]);
  }
  return elements <= ElementsOf(view) / kLeastNeighbours;
}

// How many results are neighbours in the memory of a view that has their dimensions, `kept`, first.
uint64_t ResultsBeside(const View& view, size_t kept) {
  std::vector<size_t> order(view.dims.size());
  std::iota(order.begin(), order.end(), size_t{0});
  return NeighboursOf(view, order, kept);
}

// What a thread has for each of its lanes.
struct Lane {
  int bits = 0;  // of the sums of all reductions
  int ops = 0;   // on each element
};
// Nothing, unless each element is read, computed and reduced, and nothing else is done with it.
std::optional<Lane> LaneOf(const Program& program, const KernelShape& shape) {
  if (!shape.rows || shape.held || shape.LastPhase() != 0) return std::nullopt;
  const bool of_rows = std::all_of(shape.sinks.begin(), shape.sinks.end(),
                                   [](const auto& sink) { return sink.level == Level::kRow; });
  Lane lane;
  for (const Node& node : program.nodes) {
    if (IsOpaque(program, node) || node.op == Op::kQuantizeBlock ||
        node.op == Op::kDequantizeBlock || node.op == Op::kCumulativeSum) {
      return std::nullopt;
    }
    if (node.results > 0) {
      const Value& value = shape.Of(node.first_result);
      lane.ops += value.kind == Kind::kLoop && value.level == Level::kFull ? 1 : 0;
    }
    if (node.op != Op::kReduce) continue;
    const DType type = program.types[node.operands[0]].dtype;
    lane.bits += std::max(InfoOf(AccumulatorOf(node, type)).bits, 32);
  }
  if (!of_rows || lane.bits > kMostLaneBits || lane.ops > kMaxColumnOps) return std::nullopt;
  return lane;
}

}  // namespace

int ColumnWidthOf(const Program& program, const KernelShape& shape) {
  const std::optional<Lane> lane = LaneOf(program, shape);
  if (!lane) return 0;
  std::set<ValueId> seen;
  uint64_t neighbours = std::numeric_limits<uint64_t>::max();
  uint64_t least_bits = kSectorBits;
  int down = 0;    // bits of what is read by neighbouring results
  int across = 0;  // ... in another order
  int again = 0;   // ... by many threads or by a thread many times, whatever the order
  for (const Node& node : program.nodes) {
    if (IsMove(node.op)) continue;
    for (const ValueId operand : node.operands) {
      const ValueId id = shape.values[operand].source;
      const Value& value = shape.values[id];
      if (value.kind != Kind::kMemory || *ElementsOf(program.types[id]) != shape.loop.elements ||
          !seen.insert(id).second) {
        continue;
      }
      const int bits = std::max(InfoOf(program.types[id].dtype).bits, 8);
      const auto split = shape.SplitRow(value.views);
      if (split && IsReadAgain(value.views[0])) {
        again += bits;
        continue;
      }
      const uint64_t found = split ? ResultsBeside(value.views[0], split->first.dims.size()) : 1;
      if (found < kLeastNeighbours) {
        across += bits;
        continue;
      }
      down += bits;
      neighbours = std::min(neighbours, found);
      least_bits = std::min(least_bits, static_cast<uint64_t>(bits));
    }
  }
  if (down <= across || down + across + again > kMaxColumnBits) return 0;
  const bool many = lane->bits + down + across + again > kMostWideBits;
  uint64_t width = lane->ops > 4 || many ? kMostWidth / 2 : kMostWidth;
  if (lane->ops > 8) width = std::min(width, std::max(kLeastNeighbours, kSectorBits / least_bits));
  while (width / 2 >= neighbours) width /= 2;
  const uint64_t parts = shape.chunks ? Ceil(shape.loop.row, kReductionChunk) : 1;
  while (width > kLeastNeighbours && width / 2 * least_bits >= kSectorBits &&
         Ceil(shape.loop.rows, width) * parts * kColumnThreads < kWantedThreads) {
    width /= 2;
  }
  return static_cast<int>(width);
}

int ColumnUnrollOf(const KernelShape& shape, int64_t load_bits, int ops) {
  const int lanes = shape.columns * static_cast<int>(kReductionLanes) / kColumnThreads;
  int loads = load_bits > 64 ? 1 : load_bits > 16 ? 16 : 32;
  while (loads > 1 && loads * ops > kMostUnrolledOps) loads /= 2;
  return std::max(lanes, loads);
}

uint64_t ColumnBlocksOf(const KernelShape& shape, uint64_t parts) {
  return Ceil(shape.loop.rows, static_cast<uint64_t>(shape.columns)) * parts;
}

uint64_t ColumnBusyOf(const KernelShape& shape, uint64_t parts) {
  const auto threads = static_cast<uint64_t>(kColumnThreads / shape.columns);  // of a result
  const uint64_t before = (parts - 1) * kReductionChunk;                       // the last part
  return shape.loop.rows * ((parts - 1) * threads + std::min(threads, shape.loop.row - before));
}

}  // namespace ferry::compute
