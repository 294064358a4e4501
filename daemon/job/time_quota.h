// SPDX-License-Identifier: Apache-2.0
// How much of a compute thread's time each user's runs have taken, as it was measured, and until
// when his next job waits if that was more than his share.
//
// A user's share is a time for each second. He has it for the second before in advance, so that who
// was idle may take the thread at once. A run is charged when it is over: what it took more than
// the share is made up for by waiting. So no job is refused or ended for it, and a run that has
// begun goes on.
//
// Example: a share of 100 ms a second. A run begins at 0.0 s, and ends at 0.3 s. It costs the share
// of 3 s, of which one second was paid in advance: the user's next job waits until 2.0 s.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/home.h"

namespace ferry {

// One user's. The compute thread charges; any thread asks.
class TimeQuota {
 public:
  // `share_ns`: nanoseconds for each second; outlives this object.
  explicit TimeQuota(const std::atomic<int64_t>& share_ns) : share_ns_(share_ns) {}

  // A run of the user's has taken so long, and is over now.
  void Charge(absl::Time now, absl::Duration took);
  // His next run waits until then; InfinitePast(): it need not.
  absl::Time until() const;
  bool IsOver(absl::Time now) const { return until() > now; }
  // What his runs have taken in all.
  absl::Duration taken() const {
    return absl::Nanoseconds(taken_ns_.load(std::memory_order_relaxed));
  }
  // What he has taken before counts no more for until().
  void Forgive() { until_ns_.store(kNever); }
  // What a job waits for while the quota is over, for people.
  std::string TextOf(absl::Time now) const;

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();
  const std::atomic<int64_t>& share_ns_;
  std::atomic<int64_t> taken_ns_{0};
  std::atomic<int64_t> until_ns_{kNever};  // by the monotonic clock
};

// All users of one compute thread. Home: control. It keeps every user who ever had a job there.
class TimeQuotas {
 public:
  static constexpr absl::Duration kNoLimit = absl::Seconds(1);

  // The share of each user from now on, for each second; kNoLimit or more: all of the time. Nobody
  // waits for what was taken under another share.
  void SetShare(absl::Duration share);
  // Stays as long as this object.
  TimeQuota& Of(uint32_t uid);
  // By uid.
  const std::map<uint32_t, std::unique_ptr<TimeQuota>>& all() const { return quotas_; }

 private:
  std::atomic<int64_t> share_ns_{absl::ToInt64Nanoseconds(kNoLimit)};
  std::map<uint32_t, std::unique_ptr<TimeQuota>> quotas_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
