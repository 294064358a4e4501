// SPDX-License-Identifier: Apache-2.0
// Reductions of many results at once, whose elements follow each other in memory result by result:
// of f32[4096,4096] over dimension 0 a row of the tensor has one element of each of 4096 results.
// The bits are those of OrderedReduction. Single-threaded. Works in memory that it is given.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compute/host/kernels.h"
#include "compute/host/reduction.h"
#include "compute/numerics/reduction_order.h"
#include "compute/plan/kernel_loop.h"
#include "compute/program/attribute.h"

namespace ferry::compute {

constexpr uint64_t PartsOf(uint64_t count, uint64_t part) { return (count + part - 1) / part; }

// How a fusion goes through the elements of such results. Results are `outer` times `inner`, and
// elements are in the order (outer, element of a result, inner).
struct Columns {
  uint64_t outer = 1;
  uint64_t inner = 1;
  uint64_t width = 1;   // most results of a tile, which are of one `outer`
  uint64_t steps = 1;   // elements of each result in a tile
  bool held = false;    // all lanes of the results are in memory at once: `width` is `inner`
  uint64_t chunks = 1;  // of the elements of a result, which threads may share
  uint64_t bytes = 1;   // of what a chunk comes to

  // Results of a tile if there is something to do for `parts` threads; fewer than kLeast are not
  // worth it.
  static constexpr uint64_t kLeast = 256;
  uint64_t WidthFor(uint64_t parts) const {
    if (held) return width;
    const uint64_t wanted = PartsOf(inner, PartsOf(parts, outer));
    return std::min(width, std::max(kLeast, PartsOf(wanted, 64) * 64));
  }
};

// Takes elements lane by lane, in the order in which lanes are reduced to one, so that of the 128
// lanes eight are held at most: lane 0, lane 64, these as one, lane 32, and so on.
class ColumnReduction {
 public:
  static size_t MemoryFor(uint64_t width, uint64_t row) {
    return OrderedReduction::LevelsFor(row) * kHeld * width * 8;
  }
  // Reduces `row` elements of `type` each of up to `width` results; `memory` has MemoryFor bytes.
  ColumnReduction(Reduction reduction, DType type, uint64_t width, uint64_t row, std::byte* memory)
      : reduction_(reduction),
        type_(type),
        size_(BytesOf(type, 1)),
        combine_(KernelOf(CombinerOf(reduction), type)),
        width_(width),
        memory_(memory),
        levels_(OrderedReduction::LevelsFor(row)) {
    for (size_t level = 0; level < levels_; ++level) {
      totals_[level] = row;
      row = PartsOf(row, kReductionChunk);
    }
  }

  // Calls `element(c, next)` once for each number of an element, which calls Put once; until it
  // returns false, as this does then. `next`: the number that comes then, or any. `count`: results.
  template <typename Element>
  bool Run(uint64_t count, const Element& element) {
    count_ = count;
    return totals_[0] == 0 || Chunk(levels_ - 1, 0, element);
  }
  // The element of each result.
  void Put(const std::byte* elements) { Join(elements, at_, fresh_); }
  // Writes what Run came to, an element of each result.
  void Finish(std::byte* out) const {
    if (totals_[0] > 0) {
      std::memcpy(out, Held(levels_ - 1, 0), count_ * size_);
      return;
    }
    const uint64_t identity = IdentityOf(reduction_, type_);
    for (uint64_t i = 0; i < count_; ++i) std::memcpy(out + i * size_, &identity, size_);
  }

 private:
  static constexpr size_t kHeld = 8;

  std::byte* Held(size_t level, size_t index) const {
    return memory_ + (level * kHeld + index) * width_ * size_;
  }
  void Join(const std::byte* elements, std::byte* to, bool fresh) const {
    if (fresh) {
      std::memcpy(to, elements, count_ * size_);
    } else {
      combine_(to, elements, nullptr, to, count_);
    }
  }
  // Afterwards Held(level, 0) has the chunk's result. False if `element` returned false.
  template <typename Element>
  bool Chunk(size_t level, uint64_t index, const Element& element) {
    const uint64_t first = index * kReductionChunk;
    const uint64_t end = std::min(first + kReductionChunk, totals_[level]);
    std::array<bool, kHeld> exists = {};
    size_t depth = 0;
    for (uint64_t turn = 0; turn < kReductionLanes; ++turn) {
      const uint64_t lane = LaneOf(turn);
      exists[depth] = first + lane < end;
      for (uint64_t at = first + lane; at < end; at += kReductionLanes) {
        next_ = at + kReductionLanes < end ? at + kReductionLanes : first + LaneOf(turn + 1);
        if (!Take(level, at, Held(level, depth), at == first + lane, element)) return false;
      }
      for (uint64_t bits = turn; bits % 2 == 1; bits /= 2) {
        if (exists[depth]) Join(Held(level, depth), Held(level, depth - 1), false);
        --depth;
      }
      ++depth;
    }
    return true;
  }
  template <typename Element>
  bool Take(size_t level, uint64_t at, std::byte* to, bool fresh, const Element& element) {
    if (level > 0) {
      if (!Chunk(level - 1, at, element)) return false;
      Join(Held(level - 1, 0), to, fresh);
      return true;
    }
    at_ = to;
    fresh_ = fresh;
    return element(at, next_);
  }
  // Lanes 0, 64, 32, 96, 16 and so on: the bits of `turn` in the other order.
  static uint64_t LaneOf(uint64_t turn) {
    uint64_t lane = 0;
    for (uint64_t bit = 1; bit < kReductionLanes; bit *= 2) {
      lane = lane * 2 + (turn & bit ? 1 : 0);
    }
    return lane;
  }

  Reduction reduction_;
  DType type_;
  size_t size_;
  TileKernel combine_;
  uint64_t width_;
  std::byte* memory_;
  size_t levels_;
  std::array<uint64_t, OrderedReduction::kLevels> totals_ = {};  // elements of each level
  uint64_t count_ = 0;
  // Where the next element goes, and whether it is the first there.
  std::byte* at_ = nullptr;
  bool fresh_ = false;
  uint64_t next_ = 0;
};

}  // namespace ferry::compute
