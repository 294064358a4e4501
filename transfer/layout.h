// SPDX-License-Identifier: Apache-2.0
// Which bytes one end of a transfer has, and in which order: a list of ranges, blocks at a stride,
// or blocks picked by index (a block table). A reader sees the same for all three: a sequence of
// blocks within extents. A value, cheap to copy: its long parts are immutable and shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace ferry {

// Contiguous bytes of one arena of the daemon that owns the device.
struct Range {
  ArenaId arena;
  uint64_t offset = 0;
  uint64_t length = 0;
  bool operator==(const Range&) const = default;
};

// Bounds of one layout, checked where it enters (daemon/rpc).
inline constexpr size_t kMaxRanges = 65536;
inline constexpr uint64_t kMaxBlocks = uint64_t{1} << 20;

class Layout {
 public:
  // Blocks of equal size. Block i begins at `offset` + i * `stride_bytes`. In a block table it
  // begins at `offset` + `indices`[i] * `stride_bytes`, and `stride_bytes` is `block_bytes`.
  struct Blocks {
    ArenaId arena;
    uint64_t offset = 0;
    uint64_t block_bytes = 0;
    uint64_t stride_bytes = 0;
    uint64_t count = 0;
    bool is_table = false;
    std::vector<uint64_t> indices;  // of a table: `count` entries
    bool operator==(const Blocks&) const = default;

    // Index of the block that ends farthest out. There must be a block.
    size_t Farthest() const;
    // Block `block` as text for people: "block 3", "block 3 (index 77)".
    std::string NameOf(size_t block) const;
  };

  Layout() = default;  // zero bytes
  Layout(std::initializer_list<Range> ranges) : Layout(std::vector<Range>(ranges)) {}
  explicit Layout(std::vector<Range> ranges);
  explicit Layout(const Range& range) : range_(range), has_range_(true) {}
  // The bytes of `ranges` in fewer ranges: empty ranges are left out, and ranges that follow each
  // other in memory become one. The lists of clients and peers are decoded by this.
  static Layout Merged(std::vector<Range> ranges);
  // RANGE_INVALID if a block ends beyond 64 bits, or if all blocks together have more bytes than
  // that.
  static absl::StatusOr<Layout> Strided(ArenaId arena, uint64_t offset, uint64_t block_bytes,
                                        uint64_t stride_bytes, uint64_t count);
  static absl::StatusOr<Layout> BlockTable(ArenaId arena, uint64_t offset, uint64_t block_bytes,
                                           std::vector<uint64_t> indices);

  // Total size of all blocks. For a list the sum saturates: lengths from a peer must not wrap
  // around to a sum that looks right.
  uint64_t bytes() const { return rep_ != nullptr ? rep_->bytes : range_.length; }
  // Where the bytes are: a list's ranges; for blocks, the smallest range that holds them all.
  absl::Span<const Range> extents() const {
    if (rep_ != nullptr) return rep_->extents;
    return {&range_, has_range_ ? size_t{1} : 0};
  }
  // Null for a list of ranges.
  const Blocks* blocks() const {
    return rep_ != nullptr && rep_->has_blocks ? &rep_->blocks : nullptr;
  }
  // Upper bound on the number of stretches, which are contiguous bytes; exact for blocks and for
  // layouts that Merged() made. The work of moving the layout is counted in these.
  size_t stretches() const {
    return rep_ != nullptr ? rep_->stretches : has_range_ && range_.length > 0 ? size_t{1} : 0;
  }
  // Merged() has joined or dropped ranges: the extents are not the ranges of the list.
  bool merged() const { return merged_; }
  // Bytes of memory that the layout takes beside itself; copies share it.
  uint64_t record_bytes() const;
  // Each range of a list counts as a block too, in an extent of its own.
  size_t block_count() const { return blocks() != nullptr ? blocks()->count : extents().size(); }
  Range block(size_t index) const {
    if (rep_ == nullptr) return range_;
    if (!rep_->has_blocks) return rep_->extents[index];
    const Blocks& blocks = rep_->blocks;
    const uint64_t step = blocks.is_table ? blocks.indices[index] : index;
    return {blocks.arena, blocks.offset + step * blocks.stride_bytes, blocks.block_bytes};
  }

  bool operator==(const Layout& other) const;

 private:
  struct Rep {
    std::vector<Range> extents;
    uint64_t bytes = 0;
    size_t stretches = 0;
    bool has_blocks = false;
    Blocks blocks;
  };
  // `first`, `last`: how many strides behind `offset` the first and the last block in memory begin.
  static absl::StatusOr<Layout> Make(Blocks blocks, uint64_t first, uint64_t last);

  // A single range, which most layouts have, is here; all else is in `rep_`.
  Range range_;
  bool has_range_ = false;
  bool merged_ = false;
  // Shared: one table is in a spec, an offer, a launch and an ending at the same time.
  std::shared_ptr<const Rep> rep_;
};

}  // namespace ferry
