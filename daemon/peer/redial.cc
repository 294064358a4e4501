// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/redial.h"

#include <algorithm>
#include <utility>

namespace ferry {

Redial::Step Redial::Take(absl::Time now) {
  home_.Check();
  if (knock_ != 0) return Step::kNone;
  if (now >= retry_at_) {
    retry_at_ = absl::InfiniteFuture();
    if (!dials_ && vain_knocks_ < kVainKnocks) return Step::kKnock;
    vain_knocks_ = 0;
    return Step::kDial;
  }
  return !wanted_ && now >= visit_at_ ? Step::kVisit : Step::kNone;
}

absl::Time Redial::NextTime() const {
  home_.Check();
  return wanted_ || knock_ != 0 ? retry_at_ : std::min(retry_at_, visit_at_);
}

bool Redial::Want() {
  home_.Check();
  return !std::exchange(wanted_, true);
}

void Redial::Unwant() {
  home_.Check();
  wanted_ = false;
}

void Redial::OpenAt(absl::Time now) {
  home_.Check();
  if (wanted_) retry_at_ = now;
}

void Redial::OnLost(absl::Time now) {
  home_.Check();
  retry_at_ = absl::InfiniteFuture();
  if (wanted_) {
    BackOff(now);
  } else {
    backoff_ = std::min(backoff_ * 2, kBackoffMax);
  }
}

void Redial::BackOff(absl::Time now) {
  retry_at_ = now + backoff_;
  backoff_ = std::min(backoff_ * 2, kBackoffMax);
}

void Redial::OnProven() {
  home_.Check();
  wanted_ = true;
  knocked_ = absl::InfinitePast();
}

void Redial::OnUp(bool dialled) {
  home_.Check();
  backoff_ = kBackoffMin;
  // Vain knocks to begin with after a loss: if only our dial works, dial again at once.
  vain_knocks_ = dialled && !dials_ ? kVainKnocks : 0;
}

void Redial::OnMoved() {
  home_.Check();
  knock_ = 0;
  backoff_ = kBackoffMin;
  vain_knocks_ = 0;
}

void Redial::OnKnocked(absl::Time now) {
  home_.Check();
  if (now >= knocked_ + kKnockPause) retry_at_ = knocked_ = now;
}

bool Redial::EndKnock(uint64_t number) {
  home_.Check();
  if (knock_ != number) return false;
  knock_ = 0;
  return true;
}

void Redial::OnKnockInVain(bool heard, absl::Time now) {
  home_.Check();
  if (heard) ++vain_knocks_;  // forgotten if the promised dial comes
  BackOff(now);
}

}  // namespace ferry
