// SPDX-License-Identifier: Apache-2.0
// Walks layouts as contiguous bytes, and cuts the bytes of a transfer, laid out one way at the
// source and another at the destination, into pieces that are contiguous at both ends. One piece at
// a time: nothing is made of a long layout but its cursor. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "transfer/layout.h"

namespace ferry {

// Goes through a layout in runs: contiguous bytes, as many as follow each other. Blocks that are
// neighbours in memory and in order are one run, so what costs is the bytes and the gaps. Making,
// copying and moving one costs nothing: it walks when it is asked for a run, on the lane that has
// it.
class LayoutCursor {
 public:
  explicit LayoutCursor(Layout layout) : layout_(std::move(layout)), rest_(layout_.bytes()) {}

  bool AtEnd() const { return rest_ == 0; }
  // What is left of the run: in which extent it begins, how far from the extent's start, and how
  // long it is. A run may go on into the next range of a list that follows it in memory. Not at the
  // end.
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
  // At most left().
  void Advance(uint64_t bytes) {
    Find();
    offset_ += bytes;
    left_ -= bytes;
    rest_ -= bytes;
  }
  // Back to the beginning, and to `bytes` from there: at most all.
  void Rewind() { Seek(0); }
  void Seek(uint64_t bytes);

 private:
  // Walks to where the bytes are that are next.
  void Find() {
    if (left_ == 0 && rest_ > 0) NextRun();
  }
  void NextRun();
  // Finds the run of the next block.
  void TakeRun();

  Layout layout_;
  uint64_t rest_;         // bytes until the end
  uint64_t skipped_ = 0;  // of those before: to be walked over first
  size_t next_block_ = 0;
  size_t extent_ = 0;
  uint64_t offset_ = 0;
  uint64_t left_ = 0;  // of the run; 0: it is to be found
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
