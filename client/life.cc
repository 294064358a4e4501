// SPDX-License-Identifier: Apache-2.0
#include "client/life.h"

#include <algorithm>
#include <utility>

namespace ferry::client {

CounterLine Life::Own(uint32_t timeline, const CounterLine& line) const {
  const CounterLine& begin = begin_[timeline];
  if (begin.failures == 0) return line;
  CounterLine own = line;
  own.failures -= begin.failures;
  // The line's first failure was in an older life; ours is somewhere above.
  own.first_failed = begin.value + 1;
  return own;
}

bool Life::AllWell(uint32_t timeline, const CounterLine& now, uint64_t first, uint64_t last) const {
  std::lock_guard lock(mutex_);
  const CounterLine own = Own(timeline, now);
  return !IsForgotten(timeline, first) && (own.failures == 0 || own.first_failed > last);
}

void Life::BeginReset(uint32_t timeline) {
  std::lock_guard lock(mutex_);
  if (!ended()) ++resets_[timeline];
}

void Life::EndReset(uint32_t timeline, uint64_t up_to) {
  std::lock_guard lock(mutex_);
  if (ended()) return;
  ++resets_over_[timeline];
  begin_[timeline] = {};
  forgotten_[timeline] = up_to;
}

uint64_t Life::ResetsOver(uint32_t timeline) const {
  if (timeline >= resets_over_.size()) return 0;
  std::lock_guard lock(mutex_);
  return resets_over_[timeline];
}

void Life::Posted(uint32_t timeline, uint64_t last, uint64_t resets_over) {
  std::lock_guard lock(mutex_);
  if (ended() || resets_[timeline] == resets_over) return;
  forgotten_[timeline] = std::max(forgotten_[timeline], last);
}

void Life::End(StatusPtr cause, const CounterLines& end) {
  std::lock_guard lock(mutex_);
  cause_ = std::move(cause);
  end_ = end;
  ended_.store(true, std::memory_order_release);
}

StatusPtr Life::StatusAtEnd(uint64_t transfer, uint32_t timeline, uint64_t value) const {
  std::lock_guard lock(mutex_);
  if (timeline == kPreparedTimeline) return Copy(cause_);
  const CounterLine own = Own(timeline, end_[timeline]);
  if (value > own.value) return Copy(cause_);
  if (!IsForgotten(timeline, value)) {
    if (own.failures == 0 || value < own.first_failed) return nullptr;
    const bool exact = begin_[timeline].failures == 0;
    if (exact && own.failures == 1 && value > own.first_failed) return nullptr;
  }
  // A caller that hears of a lost daemon here handles everything that was lost with it.
  const bool lost = cause_ != nullptr && cause_->reason == kReasonDaemonLost;
  return Error(lost ? kUnavailable : kNotFound, lost ? kReasonDaemonLost : kReasonTransferNotFound,
               "transfer " + std::to_string(transfer) +
                   " is over, but how it ended is not known: nobody asked before " +
                   (lost ? cause_->message : "the session ended"));
}

}  // namespace ferry::client
