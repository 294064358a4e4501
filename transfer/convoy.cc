// SPDX-License-Identifier: Apache-2.0
#include "transfer/convoy.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "transfer/pieces.h"

namespace ferry {
namespace {

// One range of an arena: what a convoy's members have.
bool IsOneRange(const Layout& layout) {
  return layout.blocks() == nullptr && layout.extents().size() == 1;
}

bool CanLead(const TransferSpec& spec) {
  return spec.defined && !spec.prepared && spec.continues == TransferId() && spec.over_value != 0 &&
         spec.key.count == 1 && spec.bytes > 0 && spec.bytes <= kMostMemberBytes &&
         IsOneRange(spec.layout);
}

// Whether `spec` can be at `place` behind `first`, which leads.
bool CanFollow(const TransferSpec& first, const TransferSpec& spec, size_t place) {
  return spec.bytes == first.bytes && spec.over_value == first.over_value + place &&
         spec.over_timeline == first.over_timeline && spec.defined && !spec.prepared &&
         spec.continues == TransferId() && spec.side == first.side &&
         spec.key.source == first.key.source && spec.key.destination == first.key.destination &&
         spec.priority == first.priority && spec.route == first.route && spec.uid == first.uid &&
         spec.deadline == first.deadline && spec.data_type == first.data_type &&
         IsOneRange(spec.layout) &&
         spec.layout.extents()[0].arena == first.layout.extents()[0].arena &&
         spec.shape == first.shape && spec.key.domain == first.key.domain;
}

}  // namespace

size_t ConvoyLength(absl::Span<const TransferSpec> specs) {
  const TransferSpec& first = specs.front();
  if (specs.size() < kLeastInConvoy || !CanLead(first)) return 1;
  const size_t most =
      std::min({specs.size(), kMostInConvoy, static_cast<size_t>(kMostConvoyBytes / first.bytes)});
  size_t length = 1;
  while (length < most && CanFollow(first, specs[length], length)) ++length;
  return length < kLeastInConvoy ? 1 : length;
}

TransferSpec MakeConvoy(absl::Span<const TransferSpec> members) {
  const TransferSpec& first = members.front();
  TransferSpec convoy;
  convoy.side = first.side;
  convoy.key = {first.key.domain, first.key.source, first.key.destination, "",
                static_cast<uint32_t>(members.size())};
  convoy.bytes = first.bytes * members.size();
  convoy.data_type = first.data_type;
  convoy.shape = first.shape;
  convoy.route = first.route;
  convoy.priority = first.priority;
  convoy.deadline = first.deadline;
  convoy.over_timeline = first.over_timeline;
  convoy.over_value = first.over_value;
  convoy.uid = first.uid;
  size_t packed = 0;
  for (const TransferSpec& member : members) packed += 1 + member.key.key.size();
  convoy.key.key.reserve(packed);
  std::vector<Range> ranges;
  ranges.reserve(members.size());
  for (const TransferSpec& member : members) {
    FERRY_CHECK(member.key.key.size() <= kMaxKeyBytes);
    convoy.key.key.push_back(static_cast<char>(member.key.key.size()));
    convoy.key.key.append(member.key.key);
    convoy.record_bytes += member.record_bytes;
    ranges.push_back(member.layout.extents()[0]);
  }
  convoy.layout = Layout::Merged(std::move(ranges));
  return convoy;
}

std::vector<absl::string_view> KeysOf(const MatchKey& convoy) {
  std::vector<absl::string_view> keys;
  if (convoy.count < 2 || convoy.count > kMostInConvoy) return keys;
  keys.reserve(convoy.count);
  absl::string_view left = convoy.key;
  while (!left.empty() && keys.size() < convoy.count) {
    const size_t size = static_cast<unsigned char>(left.front());
    left.remove_prefix(1);
    if (size == 0 || size > kMaxKeyBytes || size > left.size()) return {};
    keys.push_back(left.substr(0, size));
    left.remove_prefix(size);
  }
  if (!left.empty() || keys.size() != convoy.count) keys.clear();
  return keys;
}

MatchKey MemberKey(const MatchKey& convoy, size_t place) {
  if (convoy.count == 1) return convoy;
  return {convoy.domain, convoy.source, convoy.destination, std::string(KeysOf(convoy)[place])};
}

Layout MemberLayout(const Layout& convoy, size_t place, size_t count) {
  uint64_t left = convoy.bytes() / count;
  LayoutCursor cursor(convoy);
  cursor.Seek(place * left);
  std::vector<Range> ranges;
  while (left > 0) {
    const Range& extent = convoy.extents()[cursor.extent()];
    const uint64_t length = std::min(left, cursor.left());
    ranges.push_back({extent.arena, extent.offset + cursor.offset(), length});
    cursor.Advance(length);
    left -= length;
  }
  return Layout::Merged(std::move(ranges));
}

}  // namespace ferry
