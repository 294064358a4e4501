// SPDX-License-Identifier: Apache-2.0
#include "daemon/drain.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {

Drain::Caller Drain::Join(absl::Time now, absl::Duration timeout, bool stops, Done done) {
  home_.Check();
  if (waiting_.empty()) {
    Forget();
    began_ = now;
  }
  on_ = true;
  stops_ = stops_ || stops;
  waiting_[++callers_] = {now + timeout, std::move(done)};
  return callers_;
}

void Drain::Hurry(Caller caller, absl::Time now) {
  home_.Check();
  if (const auto it = waiting_.find(caller); it != waiting_.end()) it->second.deadline = now;
}

bool Drain::Leave(Caller caller) {
  home_.Check();
  if (waiting_.erase(caller) == 0) return false;
  if (waiting_.empty()) Forget();
  return true;
}

absl::Status Drain::TakeBack() {
  home_.Check();
  if (stops_) {
    return Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                 absl::StrCat("undrain: ", node_,
                              " was told to stop and ends when it has drained; start it again"));
  }
  on_ = false;
  End(Error(absl::StatusCode::kAborted, Reason::kCancelled,
            absl::StrCat("drain: ", node_, " serves again, an undrain has taken it back")));
  return absl::OkStatus();
}

absl::Time Drain::deadline() const {
  home_.Check();
  absl::Time earliest = absl::InfiniteFuture();
  for (const auto& [caller, waiting] : waiting_) earliest = std::min(earliest, waiting.deadline);
  return earliest;
}

bool Drain::OnTime(absl::Time now, size_t left, uint64_t failed) {
  home_.Check();
  if (waiting_.empty()) return false;
  if (left > 0 && !cut_.has_value() && now >= deadline()) {
    cut_ = Cut{failed, now + kMercy};
    Told(now);
    return true;
  }
  if (now < next(left)) return false;
  // Launches that were under way may have ended well after the deadline.
  End(cut_.has_value() ? failed - cut_->failed + left : 0);
  return false;
}

absl::Time Drain::next(size_t left) const {
  home_.Check();
  if (waiting_.empty()) return absl::InfiniteFuture();
  if (left == 0) return farewell_;
  return cut_.has_value() ? cut_->until : deadline();
}

void Drain::End(const absl::StatusOr<uint64_t>& how) {
  Forget();
  for (auto& [caller, waiting] : std::exchange(waiting_, {})) waiting.done(how);
}

void Drain::Forget() {
  cut_.reset();
  farewell_ = absl::InfinitePast();
}

}  // namespace ferry
