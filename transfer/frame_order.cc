// SPDX-License-Identifier: Apache-2.0
#include "transfer/frame_order.h"

#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {

absl::Status FrameOrder::Put(PeerEvents said) {
  home_.Check();
  const auto refuse = [](const std::string& what) {
    return Error(absl::StatusCode::kUnavailable, Reason::kProtocolError, what);
  };
  const auto end_of = [](const auto& entry) { return entry.first + entry.second.events(); };
  if (held_events_ > kMostHeld) {
    return refuse(absl::StrCat(held_events_, " events wait for event ", next_));
  }
  if (said.first_event == 0) return refuse("a frame's events have no number");
  const uint64_t first = said.first_event;
  const uint64_t count = said.events();
  const auto after = held_.lower_bound(first);
  if (first < next_ || first > std::numeric_limits<uint64_t>::max() - count ||
      (after != held_.end() && after->first < first + count) ||
      (after != held_.begin() && end_of(*std::prev(after)) > first)) {
    return refuse(absl::StrCat("events ", first, " and following were said twice"));
  }
  held_events_ += count;
  held_.emplace_hint(after, first, std::move(said));
  return absl::OkStatus();
}

std::optional<PeerEvents> FrameOrder::Take() {
  home_.Check();
  if (held_.empty() || held_.begin()->first != next_) return std::nullopt;
  PeerEvents said = std::move(held_.extract(held_.begin()).mapped());
  next_ += said.events();
  held_events_ -= said.events();
  return said;
}

}  // namespace ferry
