// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/time_quota.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/duration.h"

namespace ferry {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

}  // namespace

void TimeQuota::Charge(absl::Time now, absl::Duration took) {
  const int64_t took_ns = absl::ToInt64Nanoseconds(took);
  taken_ns_.fetch_add(took_ns, std::memory_order_relaxed);
  const int64_t begun = absl::ToUnixNanos(now) - took_ns;
  int64_t share = share_ns_.load();
  while (share < kSecond) {
    const int64_t from = std::max(until_ns_.load(), begun - kSecond);
    const double pays = static_cast<double>(took_ns) * static_cast<double>(kSecond) /
                        static_cast<double>(std::max<int64_t>(share, 1));
    constexpr double kMost = 1e18;  // 31 years
    until_ns_.store(from + static_cast<int64_t>(std::min(pays, kMost)));
    // SetShare changes the share, and then forgives. Had it forgiven before this store, the store
    // would have brought back what was forgiven, so the share is looked at once more.
    const int64_t was = std::exchange(share, share_ns_.load());
    if (share == was) return;
    Forgive();
  }
}

absl::Time TimeQuota::until() const {
  const int64_t until = until_ns_.load(std::memory_order_relaxed);
  return until == kNever ? absl::InfinitePast() : absl::FromUnixNanos(until);
}

std::string TimeQuota::TextOf(absl::Time now) const {
  const int64_t share = share_ns_.load(std::memory_order_relaxed);
  return absl::StrCat("its user's share of the GPU's time, ", share / 1'000'000,
                      " ms a second (limits.gpu_ms_per_second), for ",
                      DurationText(std::max(until() - now, absl::ZeroDuration())));
}

void TimeQuotas::SetShare(absl::Duration share) {
  home_.Check();
  const int64_t share_ns = absl::ToInt64Nanoseconds(share);
  if (share_ns_.exchange(share_ns) == share_ns) return;
  for (const auto& [uid, quota] : quotas_) quota->Forgive();
}

TimeQuota& TimeQuotas::Of(uint32_t uid) {
  home_.Check();
  std::unique_ptr<TimeQuota>& quota = quotas_[uid];
  if (quota == nullptr) quota = std::make_unique<TimeQuota>(share_ns_);
  return *quota;
}

}  // namespace ferry
