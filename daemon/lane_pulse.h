// SPDX-License-Identifier: Apache-2.0
// Whether a lane goes on, for whoever looks: each look gives it a task, and one that has not run
// the last one is silent since it was given that. Outlives the lane. Home: control, but for the
// task.
#pragma once

#include <atomic>

#include "absl/time/time.h"
#include "base/executor.h"

namespace ferry {

class LanePulse {
 public:
  // For how long `lane` has not run what it was given; zero if it has, and then it is given more.
  absl::Duration Silent(Executor& lane, absl::Time now) {
    if (!ran_.exchange(false, std::memory_order_acq_rel)) return now - given_;
    given_ = now;
    lane.Post([this] { ran_.store(true, std::memory_order_release); });
    return absl::ZeroDuration();
  }

 private:
  std::atomic<bool> ran_ = true;
  absl::Time given_;
};

}  // namespace ferry
