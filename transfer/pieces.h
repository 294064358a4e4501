// SPDX-License-Identifier: Apache-2.0
// Walks layouts as contiguous bytes. Cuts the bytes of a transfer, which may be laid out
// differently at source and destination, into pieces that are contiguous at both ends. Works piece
// by piece: of a long layout only a cursor is made. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "transfer/layout.h"

namespace ferry {

// Walks a layout in stretches: contiguous bytes, as long as they go on. Blocks that are neighbours
// in memory and in order are one stretch, so the cost is in bytes and gaps. Making, copying and
// moving a cursor costs nothing: it walks when it is asked for a stretch, on the lane that has it.
class LayoutCursor {
 public:
  explicit LayoutCursor(Layout layout) : layout_(std::move(layout)), rest_(layout_.bytes()) {}

  bool AtEnd() const { return rest_ == 0; }
  // What is left of the present stretch: the extent in which it begins, its distance from that
  // extent's start, and its length. A stretch may go on into the next range of a list that follows
  // it in memory. Not at the end.
  size_t extent() {
    Find();
    return extent_;
  }
  uint64_t offset() {
    Find();
    return offset_;
  }
  uint64_t left() {
    Find();
    return left_;
  }
  // `bytes` must be at most left().
  void Advance(uint64_t bytes) {
    Find();
    offset_ += bytes;
    left_ -= bytes;
    rest_ -= bytes;
  }
  // Rewind() goes to the beginning, Seek() to `bytes` from there; at most to the end.
  void Rewind() { Seek(0); }
  void Seek(uint64_t bytes);

 private:
  // Walks to the next bytes, if the present stretch is used up.
  void Find() {
    if (left_ == 0 && rest_ > 0) NextStretch();
  }
  void NextStretch();
  // Makes the stretch of the next block the present one.
  void TakeStretch();

  Layout layout_;
  uint64_t rest_;         // bytes until the end
  uint64_t skipped_ = 0;  // bytes before the next ones that must be walked over first
  size_t next_block_ = 0;
  size_t extent_ = 0;
  uint64_t offset_ = 0;
  uint64_t left_ = 0;  // bytes of the present stretch; 0: it must be found
};

// Contiguous bytes at both ends.
struct Piece {
  size_t source_extent = 0;
  uint64_t source_offset = 0;  // from that extent's start
  size_t destination_extent = 0;
  uint64_t destination_offset = 0;
  uint64_t length = 0;  // never 0
};

// Cuts the bytes of one transfer into pieces.
class PieceCutter {
 public:
  // Both layouts must have the same number of bytes (checked).
  PieceCutter(const Layout& source, const Layout& destination);

  bool AtEnd() const { return source_.AtEnd(); }
  // The next piece, of at most `most` bytes (not 0). Not at the end.
  Piece Next(uint64_t most = std::numeric_limits<uint64_t>::max());
  void Rewind() {
    source_.Rewind();
    destination_.Rewind();
  }

 private:
  LayoutCursor source_;
  LayoutCursor destination_;
};

}  // namespace ferry
