// SPDX-License-Identifier: Apache-2.0
#include "transfer/overlap.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/btree_map.h"
#include "base/status.h"

namespace ferry {
namespace {

using Wide = unsigned __int128;

// What comparing two strides costs, in places that are looked up.
constexpr size_t kMeetCost = 16;

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

// Strided extents of one stride and arena whose blocks are at other places within the stride, so
// that they do not meet.
class Comb {
 public:
  explicit Comb(uint64_t stride) : stride_(stride) {}

  // One that meets `length` bytes from `begin`, which is not before any of it and before the end of
  // each.
  const Extent* Find(uint64_t begin, uint64_t length) const {
    if (members_.empty()) return nullptr;
    if (length >= stride_) return members_.front();
    const uint64_t from = begin % stride_;
    if (length <= stride_ - from) return FindWithin(from, from + length);
    const Extent* const found = FindWithin(from, stride_);
    return found != nullptr ? found : FindWithin(0, length - (stride_ - from));
  }
  // One whose first block Find does not find.
  void Add(const Extent& extent) {
    const uint64_t from = extent.begin % stride_;
    const uint64_t first = std::min(extent.block, stride_ - from);
    places_[from] = {from + first, &extent};
    if (first < extent.block) places_[0] = {extent.block - first, &extent};
    members_.push_back(&extent);
  }
  void Remove(const Extent& extent) {
    const uint64_t from = extent.begin % stride_;
    places_.erase(from);
    if (extent.block > stride_ - from) places_.erase(0);
    std::erase(members_, &extent);
  }
  const std::vector<const Extent*>& members() const { return members_; }

 private:
  const Extent* FindWithin(uint64_t from, uint64_t to) const {
    const auto after = places_.lower_bound(to);
    if (after == places_.begin()) return nullptr;
    const auto& [end, extent] = std::prev(after)->second;
    return end > from ? extent : nullptr;
  }

  const uint64_t stride_;
  absl::btree_map<uint64_t, std::pair<uint64_t, const Extent*>> places_;  // by begin; with the end
  std::vector<const Extent*> members_;
};

// By arena and begin.
std::vector<Extent> ExtentsOf(absl::Span<const Layout* const> layouts) {
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
    if (blocks->stride_bytes <= blocks->block_bytes) extent.count = 1;  // without gaps
    extents.push_back(extent);
  }
  const auto before = [](const Extent& a, const Extent& b) {
    return a.arena != b.arena ? a.arena < b.arena : a.begin < b.begin;
  };
  if (!std::is_sorted(extents.begin(), extents.end(), before)) {
    std::sort(extents.begin(), extents.end(), before);
  }
  return extents;
}

// Goes through extents by arena and begin, and compares each with those before it that reach as
// far: of the contiguous ones the one that reaches farthest, and the strided ones, by stride.
class Sweep {
 public:
  explicit Sweep(absl::Span<const Layout* const> layouts)
      : layouts_(layouts), listed_(layouts.size(), false) {
    for (size_t i = 0; i < layouts.size(); ++i) {
      const Layout::Blocks* blocks = layouts[i]->blocks();
      if (layouts[i]->bytes() == 0 || blocks == nullptr || blocks->is_table || blocks->count < 2 ||
          blocks->stride_bytes >= blocks->block_bytes) {
        continue;
      }
      listed_[i] = true;
      const Range& all = layouts[i]->extents()[0];
      overlaps_.push_back({i, i, 0, 1, all.arena, all.offset + blocks->stride_bytes});
    }
  }

  // False if it would take too long.
  bool Take(const Extent& extent) {
    if (arena_ != extent.arena) {
      arena_ = extent.arena;
      farthest_ = nullptr;
      combs_.clear();
      ends_.clear();
    }
    while (!ends_.empty() && ends_.begin()->first <= extent.begin) {
      const Extent& over = *ends_.begin()->second;
      const auto comb = combs_.find(over.stride);
      comb->second.Remove(over);
      if (comb->second.members().empty()) combs_.erase(comb);
      ends_.erase(ends_.begin());
    }
    if (farthest_ != nullptr && extent.begin < farthest_->end) {
      Add(*farthest_, extent, extent.begin);
    }
    if (!CompareWithCombs(extent)) return false;
    if (extent.count == 1) {
      if (farthest_ == nullptr || extent.end > farthest_->end) farthest_ = &extent;
      return true;
    }
    Comb& comb = combs_.try_emplace(extent.stride, extent.stride).first->second;
    if (comb.Find(extent.begin, extent.block) != nullptr) return true;  // it is listed
    comb.Add(extent);
    ends_.emplace(extent.end, &extent);
    return true;
  }

  std::vector<Overlap> TakeOverlaps() { return std::move(overlaps_); }

 private:
  bool CompareWithCombs(const Extent& extent) {
    for (const auto& [stride, comb] : combs_) {
      if (listed_[extent.layout]) return true;
      if (extent.count == 1 || extent.stride == stride) {
        ++cost_;
        const uint64_t length = extent.count == 1 ? extent.end - extent.begin : extent.block;
        if (const Extent* const other = comb.Find(extent.begin, length)) {
          if (const auto at = Meet(*other, extent)) Add(*other, extent, *at);
        }
      } else {
        for (const Extent* other : comb.members()) {
          cost_ += kMeetCost;
          if (cost_ > kMaxStrideCost) break;
          if (const auto at = Meet(*other, extent)) Add(*other, extent, *at);
          if (listed_[extent.layout]) break;
        }
      }
      if (cost_ > kMaxStrideCost) return false;
    }
    return true;
  }

  // The last block of `extent` that has `offset`: a stride's blocks may lie over each other.
  size_t BlockOf(const Extent& extent, uint64_t offset) const {
    const Layout::Blocks* blocks = layouts_[extent.layout]->blocks();
    if (blocks == nullptr || blocks->is_table) return extent.index;
    const uint64_t stride = std::max<uint64_t>(blocks->stride_bytes, 1);
    return std::min(blocks->count - 1, (offset - extent.begin) / stride);
  }
  void Add(const Extent& first, const Extent& second, uint64_t offset) {
    if (listed_[second.layout]) return;
    listed_[second.layout] = true;
    overlaps_.push_back({first.layout, second.layout, BlockOf(first, offset),
                         BlockOf(second, offset), second.arena, offset});
  }

  const absl::Span<const Layout* const> layouts_;
  std::vector<bool> listed_;
  std::vector<Overlap> overlaps_;
  ArenaId arena_;
  const Extent* farthest_ = nullptr;
  absl::btree_map<uint64_t, Comb> combs_;               // by stride; none is empty
  absl::btree_multimap<uint64_t, const Extent*> ends_;  // of what the combs have
  size_t cost_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<Overlap>> FindOverlaps(absl::Span<const Layout* const> layouts) {
  const std::vector<Extent> extents = ExtentsOf(layouts);
  Sweep sweep(layouts);
  for (const Extent& extent : extents) {
    if (sweep.Take(extent)) continue;
    return Error(absl::StatusCode::kInvalidArgument, Reason::kBatchTooLarge,
                 "too many strides of different lengths with others, ranges or blocks between "
                 "their ends; post several batches");
  }
  return sweep.TakeOverlaps();
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
