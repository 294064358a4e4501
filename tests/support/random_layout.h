// SPDX-License-Identifier: Apache-2.0
// Random layouts of every form, and the model of a layout, byte by byte, against which all faster
// code for layouts is tested.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "transfer/layout.h"

namespace ferry {

// (arena, offset) of each byte, in order.
inline std::vector<std::pair<uint64_t, uint64_t>> Places(const Layout& layout) {
  std::vector<std::pair<uint64_t, uint64_t>> places;
  for (size_t i = 0; i < layout.block_count(); ++i) {
    const Range block = layout.block(i);
    for (uint64_t at = 0; at < block.length; ++at) {
      places.emplace_back(block.arena.value(), block.offset + at);
    }
  }
  return places;
}

// A layout of exactly `bytes` bytes of [0, room) of `arena`, none of them twice: a list of ranges,
// a stride or a table, in which now and then neighbours follow each other. `room` must be at least
// twice `bytes`.
inline Layout RandomLayout(std::mt19937_64& random, ArenaId arena, uint64_t room, uint64_t bytes) {
  const auto below = [&](uint64_t end) { return random() % end; };
  uint64_t block = std::max<uint64_t>(bytes / (1 + below(64)), 1);
  while (bytes % block != 0) --block;
  const uint64_t count = bytes / block;
  switch (below(3)) {
    case 0: {
      std::vector<Range> ranges;
      uint64_t gaps = room - bytes;
      uint64_t at = 0;
      for (uint64_t left = bytes; left != 0 && ranges.size() < 1000;) {
        const uint64_t gap = below(3) == 0 ? below(gaps / 2 + 1) : 0;
        const uint64_t length = ranges.size() == 999 ? left : below(std::min(left, 2 * block) + 1);
        ranges.push_back({arena, at + gap, length});
        at += gap + length;
        gaps -= gap;
        left -= length;
      }
      if (below(2) == 0) std::shuffle(ranges.begin(), ranges.end(), random);
      return Layout(std::move(ranges));
    }
    case 1: {
      const uint64_t stride = block + (count < 2 ? 0 : below((room - bytes) / (count - 1) + 1));
      const uint64_t extent = count == 0 ? 0 : (count - 1) * stride + block;
      return *Layout::Strided(arena, below(room - extent + 1), block, stride, count);
    }
    default: {
      std::vector<uint64_t> slots(room / block);
      std::iota(slots.begin(), slots.end(), 0);
      if (below(2) == 0) std::shuffle(slots.begin(), slots.end(), random);
      const uint64_t first = below(slots.size() - count + 1);
      std::vector<uint64_t> indices(slots.begin() + static_cast<ptrdiff_t>(first),
                                    slots.begin() + static_cast<ptrdiff_t>(first + count));
      return *Layout::BlockTable(arena, below(room % block + 1), block, std::move(indices));
    }
  }
}

}  // namespace ferry
