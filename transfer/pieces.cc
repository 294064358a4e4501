// SPDX-License-Identifier: Apache-2.0
#include "transfer/pieces.h"

#include <algorithm>

#include "base/check.h"

namespace ferry {

void LayoutCursor::Seek(uint64_t bytes) {
  rest_ = layout_.bytes() - bytes;
  next_block_ = 0;
  left_ = 0;
  skipped_ = bytes;
  const Layout::Blocks* blocks = layout_.blocks();
  if (blocks == nullptr || bytes == 0 || layout_.stretches() == 1) return;
  next_block_ = bytes / blocks->block_bytes;  // all are of one size
  skipped_ = bytes % blocks->block_bytes;
}

void LayoutCursor::NextStretch() {
  TakeStretch();
  while (skipped_ > 0) {
    const uint64_t step = std::min(skipped_, left_);
    skipped_ -= step;
    offset_ += step;
    left_ -= step;
    if (left_ == 0) TakeStretch();
  }
}

void LayoutCursor::TakeStretch() {
  if (layout_.blocks() != nullptr && layout_.stretches() == 1) {
    extent_ = 0;
    offset_ = 0;
    left_ = layout_.bytes();
    return;
  }
  const size_t count = layout_.block_count();
  for (; next_block_ < count; ++next_block_) {
    const Range block = layout_.block(next_block_);
    if (block.length == 0) continue;
    extent_ = layout_.blocks() != nullptr ? 0 : next_block_;
    const Range& extent = layout_.extents()[extent_];
    offset_ = block.offset - extent.offset;
    left_ = block.length;
    break;
  }
  FERRY_CHECK(next_block_ < count);  // there are bytes left
  const ArenaId arena = layout_.extents()[extent_].arena;
  uint64_t end = layout_.block(next_block_).offset + left_;
  while (++next_block_ < count) {
    const Range block = layout_.block(next_block_);
    if (block.length == 0) continue;
    if (block.arena != arena || block.offset != end) return;
    left_ += block.length;
    end += block.length;
  }
}

PieceCutter::PieceCutter(const Layout& source, const Layout& destination)
    : source_(source), destination_(destination) {
  FERRY_CHECK(source.bytes() == destination.bytes());
}

Piece PieceCutter::Next(uint64_t most) {
  const uint64_t length = std::min({source_.left(), destination_.left(), most});
  const Piece piece{source_.extent(), source_.offset(), destination_.extent(),
                    destination_.offset(), length};
  source_.Advance(length);
  destination_.Advance(length);
  return piece;
}

}  // namespace ferry
