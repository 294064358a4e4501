// SPDX-License-Identifier: Apache-2.0
#include "transfer/layout.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

// How often contiguous bytes begin.
size_t StretchesOf(const Layout::Blocks& blocks) {
  if (blocks.count == 0 || blocks.block_bytes == 0) return 0;
  if (!blocks.is_table) return blocks.stride_bytes == blocks.block_bytes ? 1 : blocks.count;
  size_t stretches = 1;
  for (size_t i = 1; i < blocks.indices.size(); ++i) {
    if (blocks.indices[i] != blocks.indices[i - 1] + 1) ++stretches;
  }
  return stretches;
}

uint64_t SaturatingSum(const std::vector<Range>& ranges) {
  uint64_t total = 0;
  for (const Range& range : ranges) {
    if (range.length > kMax - total) return kMax;
    total += range.length;
  }
  return total;
}

}  // namespace

Layout::Layout(std::vector<Range> ranges) {
  if (ranges.size() == 1) {
    range_ = ranges.front();
    has_range_ = true;
  } else if (!ranges.empty()) {
    Rep rep;
    rep.bytes = SaturatingSum(ranges);
    rep.stretches = ranges.size();
    rep.extents = std::move(ranges);
    rep_ = std::make_shared<const Rep>(std::move(rep));
  }
}

Layout Layout::Merged(std::vector<Range> ranges) {
  size_t kept = 0;
  for (const Range& range : ranges) {
    if (range.length == 0) continue;
    if (kept > 0) {
      Range& last = ranges[kept - 1];
      // Neither ends beyond 2^64 then.
      if (last.arena == range.arena && range.offset > last.offset &&
          range.offset - last.offset == last.length && range.length <= kMax - range.offset) {
        last.length += range.length;
        continue;
      }
    }
    ranges[kept++] = range;
  }
  const bool merged = kept < ranges.size();
  ranges.resize(kept);
  if (merged) ranges.shrink_to_fit();
  Layout layout(std::move(ranges));
  layout.merged_ = merged;
  return layout;
}

uint64_t Layout::record_bytes() const {
  if (rep_ == nullptr) return 0;
  return sizeof(Rep) + rep_->extents.capacity() * sizeof(Range) +
         rep_->blocks.indices.capacity() * sizeof(uint64_t);
}

size_t Layout::Blocks::Farthest() const {
  if (!is_table) return count - 1;
  return static_cast<size_t>(std::max_element(indices.begin(), indices.end()) - indices.begin());
}

std::string Layout::Blocks::NameOf(size_t block) const {
  std::string name = absl::StrCat("block ", block);
  if (is_table) absl::StrAppend(&name, " (index ", indices[block], ")");
  return name;
}

absl::StatusOr<Layout> Layout::Make(Blocks blocks, uint64_t first, uint64_t last) {
  using Wide = unsigned __int128;
  const Wide begin = Wide{blocks.offset} + Wide{first} * blocks.stride_bytes;
  const Wide end = Wide{blocks.offset} + Wide{last} * blocks.stride_bytes + blocks.block_bytes;
  const Wide bytes = Wide{blocks.count} * blocks.block_bytes;
  if (end > kMax && blocks.count > 0) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kRangeInvalid,
                 absl::StrCat(blocks.NameOf(blocks.Farthest()), " ends beyond 2^64: it has ",
                              blocks.block_bytes, " bytes at offset ", blocks.offset, " + ", last,
                              " x ", blocks.stride_bytes, " of ", blocks.arena.ToString()));
  }
  if (end > kMax || bytes > kMax) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kRangeInvalid,
                 absl::StrCat(blocks.count, " blocks of ", blocks.block_bytes, " bytes at offset ",
                              blocks.offset, " of ", blocks.arena.ToString(), " overflow"));
  }
  Rep rep;
  rep.extents = {blocks.count == 0 ? Range{blocks.arena, blocks.offset, 0}
                                   : Range{blocks.arena, static_cast<uint64_t>(begin),
                                           static_cast<uint64_t>(end - begin)}};
  rep.bytes = static_cast<uint64_t>(bytes);
  rep.stretches = StretchesOf(blocks);
  rep.has_blocks = true;
  rep.blocks = std::move(blocks);
  Layout layout;
  layout.rep_ = std::make_shared<const Rep>(std::move(rep));
  return layout;
}

absl::StatusOr<Layout> Layout::Strided(ArenaId arena, uint64_t offset, uint64_t block_bytes,
                                       uint64_t stride_bytes, uint64_t count) {
  return Make({arena, offset, block_bytes, stride_bytes, count, /*is_table=*/false, {}}, 0,
              count == 0 ? 0 : count - 1);
}

absl::StatusOr<Layout> Layout::BlockTable(ArenaId arena, uint64_t offset, uint64_t block_bytes,
                                          std::vector<uint64_t> indices) {
  uint64_t first = 0;
  uint64_t last = 0;
  if (!indices.empty()) {
    const auto [least, most] = std::minmax_element(indices.begin(), indices.end());
    first = *least;
    last = *most;
  }
  const uint64_t count = indices.size();
  return Make(
      {arena, offset, block_bytes, block_bytes, count, /*is_table=*/true, std::move(indices)},
      first, last);
}

bool Layout::operator==(const Layout& other) const {
  if (rep_ == other.rep_ && rep_ != nullptr) return true;
  if ((blocks() == nullptr) != (other.blocks() == nullptr)) return false;
  return blocks() != nullptr ? *blocks() == *other.blocks() : extents() == other.extents();
}

}  // namespace ferry
