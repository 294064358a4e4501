// SPDX-License-Identifier: Apache-2.0
#include "transfer/tcp/segment_map.h"

#include <algorithm>

#include "base/check.h"

namespace ferry {

SegmentMap::SegmentMap(absl::Span<const Segment> segments) : segments_(segments) {
  if (segments.size() > 1) ends_.reserve(segments.size());
  for (const Segment& segment : segments) {
    bytes_ += segment.size;
    if (segments.size() > 1) ends_.push_back(bytes_);
  }
}

std::pair<const Segment*, size_t> SegmentMap::Find(uint64_t at) const {
  FERRY_CHECK(at < bytes_);
  if (ends_.empty()) return {segments_.data(), at};
  // The first that ends behind it: segments without bytes are passed over.
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), at);
  const Segment& segment = segments_[static_cast<size_t>(end - ends_.begin())];
  return {&segment, segment.size - (*end - at)};
}

size_t SegmentMap::Append(uint64_t at, size_t size, size_t most, std::vector<iovec>& pieces) const {
  if (size == 0) return 0;
  auto [segment, offset] = Find(at);
  size_t left = size;
  for (; left > 0 && pieces.size() < most; ++segment, offset = 0) {
    const size_t here = std::min(left, segment->size - offset);
    if (here == 0) continue;
    pieces.push_back({segment->local + offset, here});
    left -= here;
  }
  return size - left;
}

}  // namespace ferry
