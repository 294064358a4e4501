// SPDX-License-Identifier: Apache-2.0
#include "base/retry_after.h"

#include <algorithm>
#include <cmath>

namespace ferry {
namespace {

constexpr absl::Duration kMemory = absl::Seconds(1);

}  // namespace

double RetryAfter::LevelAt(absl::Time now) const {
  return level_ * std::exp(-absl::FDivDuration(now - last_, kMemory));
}

void RetryAfter::OnFreed(absl::Time now, uint64_t places) {
  if (now > last_) {
    level_ = level_ == 0 ? 0 : LevelAt(now);
    last_ = now;
  }
  level_ += static_cast<double>(places);
}

absl::Duration RetryAfter::For(absl::Time now, uint64_t places) const {
  if (last_ == absl::InfinitePast()) return kUnknown;
  const absl::Duration wait =
      kMemory * (static_cast<double>(places) / std::max(LevelAt(now), 1e-9));
  return std::clamp(wait, kLeast, kMost);
}

}  // namespace ferry
