// SPDX-License-Identifier: Apache-2.0
#include "transfer/pieces.h"

#include <algorithm>

#include "base/check.h"

namespace ferry {
namespace {

// Walks one end's list; skips ranges of no length, which have no piece.
class Cursor {
 public:
  explicit Cursor(absl::Span<const uint64_t> lengths) : lengths_(lengths) { SkipEmpty(); }
  bool AtEnd() const { return range_ == lengths_.size(); }
  size_t range() const { return range_; }
  uint64_t offset() const { return offset_; }
  uint64_t left() const { return lengths_[range_] - offset_; }
  void Advance(uint64_t bytes) {
    offset_ += bytes;
    SkipEmpty();
  }

 private:
  void SkipEmpty() {
    while (range_ < lengths_.size() && offset_ == lengths_[range_]) {
      ++range_;
      offset_ = 0;
    }
  }

  absl::Span<const uint64_t> lengths_;
  size_t range_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace

std::vector<Piece> CutPieces(absl::Span<const uint64_t> source_lengths,
                             absl::Span<const uint64_t> destination_lengths) {
  std::vector<Piece> pieces;
  pieces.reserve(std::max(source_lengths.size(), destination_lengths.size()));
  Cursor source(source_lengths);
  Cursor destination(destination_lengths);
  while (!source.AtEnd() && !destination.AtEnd()) {
    const uint64_t length = std::min(source.left(), destination.left());
    pieces.push_back(
        {source.range(), source.offset(), destination.range(), destination.offset(), length});
    source.Advance(length);
    destination.Advance(length);
  }
  FERRY_CHECK(source.AtEnd() && destination.AtEnd());
  return pieces;
}

}  // namespace ferry
