// SPDX-License-Identifier: Apache-2.0
#include "daemon/session/ending_log.h"

#include <algorithm>
#include <utility>

namespace ferry {

void EndingLog::AddFailures(uint64_t sequence, uint32_t count, const absl::Status& status) {
  home_.Check();
  for (uint32_t place = 0; place < count; ++place) {
    failure_bytes_ += status.message().size();
    while (!failure_order_.empty() &&
           (failure_order_.size() >= failures_kept_ || failure_bytes_ > kFailureBytesKept)) {
      const auto oldest = failures_.find(failure_order_.front());
      forgotten_failures_ = std::max(forgotten_failures_, oldest->first);
      failure_bytes_ -= oldest->second.message().size();
      failures_.erase(oldest);
      failure_order_.pop_front();
    }
    failures_[sequence + place] = status;
    failure_order_.push_back(sequence + place);
  }
}

std::optional<absl::Status> EndingLog::FindFailure(uint64_t sequence) const {
  home_.Check();
  auto it = failures_.find(sequence);
  if (it == failures_.end()) return std::nullopt;
  return it->second;
}

void EndingLog::Add(const EndedTransfer& ended) {
  home_.Check();
  if (endings_.size() == kEndingsKept) endings_.pop_front();
  endings_.push_back(ended);
  ++next_;
}

uint64_t EndingLog::AddWatcher(std::function<void()> notify) {
  home_.Check();
  watchers_[next_watcher_] = std::move(notify);
  return next_watcher_++;
}

void EndingLog::NotifyWatchers() const {
  home_.Check();
  for (const auto& [id, notify] : watchers_) notify();
}

}  // namespace ferry
