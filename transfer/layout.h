// SPDX-License-Identifier: Apache-2.0
// Which bytes one end of a transfer has, and in which order: a list of ranges, blocks at a stride,
// or blocks picked by index (a block table). All three are the same to who reads them: a sequence
// of blocks within extents. A value, cheap to copy: what is long is immutable and shared.
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

// Bounds of one layout, enforced where it enters (daemon/rpc).
inline constexpr size_t kMaxRanges = 65536;
inline constexpr uint64_t kMaxBlocks = uint64_t{1} << 20;

class Layout {
 public:
  // Blocks of equal size: block i begins at `offset` + i * `stride_bytes`; with a block table at
  // `offset` + `indices`[i] * `stride_bytes`, and the stride is the blocks' size.
  struct Blocks {
    ArenaId arena;
    uint64_t offset = 0;
    uint64_t block_bytes = 0;
    uint64_t stride_bytes = 0;
    uint64_t count = 0;
    bool is_table = false;
    std::vector<uint64_t> indices;  // `count` of them, if it is a table
    bool operator==(const Blocks&) const = default;

    // The block that ends farthest out; there is one at least.
    size_t Farthest() const;
    // Block `block` for people: "block 3", "block 3 (index 77)".
    std::string NameOf(size_t block) const;
  };

  Layout() = default;  // zero bytes
  Layout(std::initializer_list<Range> ranges) : Layout(std::vector<Range>(ranges)) {}
  explicit Layout(std::vector<Range> ranges);
  explicit Layout(const Range& range) : range_(range), has_range_(true) {}
  // The same bytes as of `ranges`, in fewer: those without bytes are left out, and what follows
  // each other in memory is one. What a client or a peer lists is decoded to this.
  static Layout Merged(std::vector<Range> ranges);
  // RANGE_INVALID if a block ends beyond all numbers, or all together have more bytes than that.
  static absl::StatusOr<Layout> Strided(ArenaId arena, uint64_t offset, uint64_t block_bytes,
                                        uint64_t stride_bytes, uint64_t count);
  static absl::StatusOr<Layout> BlockTable(ArenaId arena, uint64_t offset, uint64_t block_bytes,
                                           std::vector<uint64_t> indices);

  // Of all blocks. Saturates for a list: lengths from a peer must not wrap around to a sum that
  // looks right.
  uint64_t bytes() const { return rep_ != nullptr ? rep_->bytes : range_.length; }
  // Where the bytes are: a list's ranges; of blocks the smallest range that holds them all.
  absl::Span<const Range> extents() const {
    if (rep_ != nullptr) return rep_->extents;
    return {&range_, has_range_ ? size_t{1} : 0};
  }
  // Null for a list.
  const Blocks* blocks() const {
    return rep_ != nullptr && rep_->has_blocks ? &rep_->blocks : nullptr;
  }
  // How often contiguous bytes begin at most; exact for blocks, and for what Merged made. What the
  // work of moving it is counted in.
  size_t runs() const {
    return rep_ != nullptr ? rep_->runs : has_range_ && range_.length > 0 ? size_t{1} : 0;
  }
  // Merged made fewer ranges of what was listed: its extents are not those of the list.
  bool merged() const { return merged_; }
  // Memory that it takes beside itself; copies share it.
  uint64_t kept_bytes() const;
  // A list's ranges are blocks too, each in its own extent.
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
    size_t runs = 0;
    bool has_blocks = false;
    Blocks blocks;
  };
  // `first`, `last`: how many strides behind the offset the outermost blocks begin.
  static absl::StatusOr<Layout> Make(Blocks blocks, uint64_t first, uint64_t last);

  // One range, which is most layouts, is here; all else in `rep_`.
  Range range_;
  bool has_range_ = false;
  bool merged_ = false;
  // Shared: a table is in a spec, an offer, a launch and an ending at the same time.
  std::shared_ptr<const Rep> rep_;
};

}  // namespace ferry
