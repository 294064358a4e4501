// SPDX-License-Identifier: Apache-2.0
// Addresses the segments of one end of a transfer as one row of bytes: where in memory any part of
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
  // The segments must neither move nor change as long as this is used.
  explicit SegmentMap(absl::Span<const Segment> segments);

  uint64_t bytes() const { return bytes_; }
  // The segment that has byte `at` (less than bytes()), and the byte's distance from its beginning.
  std::pair<const Segment*, size_t> Find(uint64_t at) const;
  // Appends the memory of `size` bytes from `at` on, which must not go beyond the end. Stops when
  // `pieces` has `most` entries. Returns how many bytes were appended.
  size_t Append(uint64_t at, size_t size, size_t most, std::vector<iovec>& pieces) const;

 private:
  absl::Span<const Segment> segments_;
  std::vector<uint64_t> ends_;  // end of each segment; empty if there is only one
  uint64_t bytes_ = 0;
};

}  // namespace ferry
