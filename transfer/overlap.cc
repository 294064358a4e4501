// SPDX-License-Identifier: Apache-2.0
#include "transfer/overlap.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/status.h"

namespace ferry {
namespace {

using Wide = unsigned __int128;

// Contiguous bytes, or blocks at a stride that do not touch each other.
struct Extent {
  ArenaId arena;
  uint64_t begin = 0;
  uint64_t end = 0;    // of all
  uint64_t block = 0;  // length of one
  uint64_t stride = 0;
  uint64_t count = 1;
  size_t layout = 0;
  size_t index = 0;  // of the block, if it is one of a list or table
};

uint64_t EndOf(const Range& range) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  return range.length > kMax - range.offset ? kMax : range.offset + range.length;
}

// The smallest x with low <= a * x mod m <= high, if there is one; 0 < low <= high < m. Euclid's
// algorithm on the window: if no multiple of `a` is in it before the first wrap, then how often to
// wrap is the same question with m mod a.
std::optional<Wide> FirstInWindow(Wide a, Wide m, Wide low, Wide high) {
  a %= m;
  if (a == 0) return std::nullopt;
  const Wide x = (low + a - 1) / a;
  if (x * a <= high) return x;
  const std::optional<Wide> wraps = FirstInWindow(m, a, a - high % a, a - low % a);
  if (!wraps) return std::nullopt;
  return (low + m * *wraps + a - 1) / a;
}

// The first byte that `strided` and [begin, end) share; `begin` is not before `strided`.
std::optional<uint64_t> Meet(const Extent& strided, uint64_t begin, uint64_t end) {
  const uint64_t from = begin - strided.begin;
  const uint64_t index = from < strided.block ? 0 : (from - strided.block) / strided.stride + 1;
  if (index >= strided.count) return std::nullopt;
  const uint64_t at = strided.begin + index * strided.stride;
  if (at >= end) return std::nullopt;
  return std::max(at, begin);
}

// A byte that `strided` and `other` share; `other` does not begin before it.
std::optional<uint64_t> Meet(const Extent& strided, const Extent& other) {
  if (other.count == 1) return Meet(strided, other.begin, other.end);
  const auto meet_block = [&](uint64_t index) {
    const uint64_t at = other.begin + index * other.stride;
    return Meet(strided, at, at + other.block);
  };
  // Of the blocks that begin before the end of `strided` only the last may end behind it; for all
  // before that only their place within the stride matters.
  const uint64_t last = std::min(other.count - 1, (strided.end - 1 - other.begin) / other.stride);
  if (const auto at = meet_block(last)) return at;
  const Wide m = strided.stride;
  const Wide shifted = (Wide{other.begin - strided.begin} + other.block - 1) % m;
  const Wide widest = Wide{strided.block} + other.block - 2;
  Wide index = 0;
  if (shifted > widest) {
    const auto found = FirstInWindow(other.stride, m, m - shifted, m - shifted + widest);
    if (!found) return std::nullopt;
    index = *found;
  }
  if (index >= last) return std::nullopt;
  return meet_block(static_cast<uint64_t>(index));
}

}  // namespace

absl::StatusOr<std::vector<Overlap>> FindOverlaps(absl::Span<const Layout* const> layouts) {
  std::vector<Overlap> overlaps;
  std::vector<bool> listed(layouts.size(), false);
  // The last block of `extent` that has `offset`: a stride's blocks may lie over each other.
  const auto block_of = [&](const Extent& extent, uint64_t offset) -> size_t {
    const Layout::Blocks* blocks = layouts[extent.layout]->blocks();
    if (blocks == nullptr || blocks->is_table) return extent.index;
    const uint64_t stride = std::max<uint64_t>(blocks->stride_bytes, 1);
    return std::min(blocks->count - 1, (offset - extent.begin) / stride);
  };
  const auto add = [&](const Extent& first, const Extent& second, uint64_t offset) {
    if (listed[second.layout]) return;
    listed[second.layout] = true;
    overlaps.push_back({first.layout, second.layout, block_of(first, offset),
                        block_of(second, offset), second.arena, offset});
  };

  std::vector<Extent> extents;
  extents.reserve(layouts.size());
  for (size_t i = 0; i < layouts.size(); ++i) {
    const Layout& layout = *layouts[i];
    if (layout.bytes() == 0) continue;
    const Layout::Blocks* blocks = layout.blocks();
    if (blocks == nullptr || blocks->is_table) {
      for (size_t b = 0; b < layout.block_count(); ++b) {
        const Range range = layout.block(b);
        if (range.length == 0) continue;
        extents.push_back({range.arena, range.offset, EndOf(range), range.length, 0, 1, i, b});
      }
      continue;
    }
    const Range& all = layout.extents()[0];
    Extent extent{all.arena,     all.offset, EndOf(all), blocks->block_bytes, blocks->stride_bytes,
                  blocks->count, i};
    if (blocks->stride_bytes < blocks->block_bytes && blocks->count > 1) {
      listed[i] = true;
      overlaps.push_back({i, i, 0, 1, all.arena, all.offset + blocks->stride_bytes});
    }
    if (blocks->stride_bytes <= blocks->block_bytes) extent.count = 1;  // without gaps
    extents.push_back(extent);
  }
  const auto before = [](const Extent& a, const Extent& b) {
    return a.arena != b.arena ? a.arena < b.arena : a.begin < b.begin;
  };
  if (!std::is_sorted(extents.begin(), extents.end(), before)) {
    std::sort(extents.begin(), extents.end(), before);
  }

  // Each against the contiguous one before it that reaches farthest, and the strided ones that
  // reach this far.
  const Extent* farthest = nullptr;
  std::vector<const Extent*> strided;
  size_t comparisons = 0;
  for (const Extent& extent : extents) {
    if (farthest != nullptr && farthest->arena != extent.arena) farthest = nullptr;
    std::erase_if(strided, [&](const Extent* other) {
      return other->arena != extent.arena || other->end <= extent.begin;
    });
    if (farthest != nullptr && extent.begin < farthest->end) {
      add(*farthest, extent, extent.begin);
    }
    comparisons += strided.size();
    if (comparisons > kMaxStrideComparisons) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kBatchTooLarge,
                   "strides with too many ranges, blocks or other strides between their ends; "
                   "post several batches");
    }
    for (const Extent* other : strided) {
      if (listed[extent.layout]) break;
      if (const auto at = Meet(*other, extent)) add(*other, extent, *at);
    }
    if (extent.count > 1) {
      strided.push_back(&extent);
    } else if (farthest == nullptr || extent.end > farthest->end) {
      farthest = &extent;
    }
  }
  return overlaps;
}

std::vector<Range> Union(std::vector<Range> ranges) {
  std::erase_if(ranges, [](const Range& range) { return range.length == 0; });
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return a.arena != b.arena ? a.arena < b.arena : a.offset < b.offset;
  });
  size_t kept = 0;
  for (const Range& range : ranges) {
    if (kept > 0) {
      Range& last = ranges[kept - 1];
      if (last.arena == range.arena && range.offset <= EndOf(last)) {
        last.length = std::max(EndOf(last), EndOf(range)) - last.offset;
        continue;
      }
    }
    ranges[kept++] = range;
  }
  ranges.resize(kept);
  return ranges;
}

bool Meets(absl::Span<const Range> ranges, const Range& range) {
  // Only the first that ends behind where `range` begins can be it.
  const auto at = std::partition_point(ranges.begin(), ranges.end(), [&](const Range& one) {
    return one.arena != range.arena ? one.arena < range.arena : EndOf(one) <= range.offset;
  });
  return at != ranges.end() && at->arena == range.arena && range.length != 0 &&
         at->offset < EndOf(range);
}

}  // namespace ferry
