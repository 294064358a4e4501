// SPDX-License-Identifier: Apache-2.0
// A reduction that is given its elements in order, some at a time, and combines them in the order
// that docs/numerics.md says. It may have several results, which then take turns: first the first
// element of each. Single-threaded. Works in memory that it is given.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compute/host/kernels.h"
#include "compute/numerics/reduction_order.h"
#include "compute/program/attribute.h"

namespace ferry::compute {

Op CombinerOf(Reduction reduction);

class OrderedReduction {
 public:
  // Levels of chunks of chunks: the largest program needs no more.
  static constexpr size_t kLevels = 6;
  // Levels for `row` elements of each result.
  static size_t LevelsFor(uint64_t row);
  static size_t MemoryFor(uint64_t width, uint64_t row) {
    return LevelsFor(row) * kReductionLanes * 8 * width;
  }

  // Reduces elements of `type` to `width` results; `memory` has MemoryFor bytes.
  OrderedReduction(Reduction reduction, DType type, uint64_t width, std::byte* memory);

  // `count` elements of each result.
  void Add(const std::byte* elements, uint64_t count) { AddAt(0, elements, count); }
  // Writes the results to `out`, and begins anew.
  void Finish(std::byte* out);

 private:
  std::byte* LanesOf(size_t level) { return memory_ + level * kReductionLanes * 8 * width_; }
  void AddAt(size_t level, const std::byte* elements, uint64_t count);
  // Afterwards lane 0 of the level has the results of the level's chunk.
  void Close(size_t level);

  Reduction reduction_;
  DType type_;
  size_t size_;  // of an element of each result
  uint64_t width_;
  TileKernel combine_;
  std::byte* memory_;
  std::array<uint64_t, kLevels> counts_ = {};  // elements in the open chunk of each level
};

}  // namespace ferry::compute
