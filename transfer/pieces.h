// SPDX-License-Identifier: Apache-2.0
// Walks layouts as contiguous bytes, and cuts the bytes of a transfer, laid out one way at the
// source and another at the destination, into pieces that are contiguous at both ends. One piece at
// a time: nothing is made of a long layout but its cursor. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "transfer/layout.h"

namespace ferry {

// Goes through a layout in runs: contiguous bytes, as many as follow each other. Blocks that are
// neighbours in memory and in order are one run, so what costs is the bytes and the gaps.
class LayoutCursor {
 public:
  explicit LayoutCursor(Layout layout);

  bool AtEnd() const { return left_ == 0; }
  // What is left of the run: in which extent it begins, how far from the extent's start, and how
  // long it is. A run may go on into the next range of a list that follows it in memory.
  size_t extent() const { return extent_; }
  uint64_t offset() const { return offset_; }
  uint64_t left() const { return left_; }
  // At most left().
  void Advance(uint64_t bytes);
  // Back to the beginning, and to `bytes` from there: at most all.
  void Rewind() { Seek(0); }
  void Seek(uint64_t bytes);

 private:
  void NextRun();

  Layout layout_;
  size_t next_block_ = 0;
  size_t extent_ = 0;
  uint64_t offset_ = 0;
  uint64_t left_ = 0;
};

struct Piece {
  size_t source_extent = 0;
  uint64_t source_offset = 0;  // from that extent's start
  size_t destination_extent = 0;
  uint64_t destination_offset = 0;
  uint64_t length = 0;  // never 0
};

class PieceCutter {
 public:
  // Both have the same number of bytes (checked).
  PieceCutter(const Layout& source, const Layout& destination);

  bool AtEnd() const { return source_.AtEnd(); }
  // The next piece, cut off at `most` (not 0). Not at the end.
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
