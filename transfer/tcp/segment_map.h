// SPDX-License-Identifier: Apache-2.0
// The segments of one end of a transfer, looked at as one row of bytes: where in memory any part of
// it is. Pure. Home: its owner's.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "transfer/transport.h"

namespace ferry {

class SegmentMap {
 public:
  SegmentMap() = default;
  // The segments stay where they are, and are not changed, as long as this is used.
  explicit SegmentMap(absl::Span<const Segment> segments);

  uint64_t bytes() const { return bytes_; }
  // The segment in which byte `at` (less than bytes()) is, and how far from its beginning.
  std::pair<const Segment*, size_t> Find(uint64_t at) const;
  // Appends the memory of the `size` bytes from `at` on (not beyond the end), but only so far as
  // `pieces` then has at most `most` entries; how many bytes those are.
  size_t Append(uint64_t at, size_t size, size_t most, std::vector<iovec>& pieces) const;

 private:
  absl::Span<const Segment> segments_;
  std::vector<uint64_t> ends_;  // of each segment; empty if there is one
  uint64_t bytes_ = 0;
};

}  // namespace ferry
