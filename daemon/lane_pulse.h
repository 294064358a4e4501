// SPDX-License-Identifier: Apache-2.0
// Tells how long a lane has been standing still. Each call of Silent gives the lane a task; a lane
// that has not run the last task is silent since it was given that task. Outlives the lane. Home:
// control, except that the task runs on the lane.
#pragma once

#include <atomic>

#include "absl/time/time.h"
#include "base/executor.h"
#include "base/home.h"

namespace ferry {

class LanePulse {
 public:
  // For how long `lane` has not run the task it was given. Zero if it has run the task; then it is
  // given the next one.
  absl::Duration Silent(Executor& lane, absl::Time now) {
    home_.Check();
    if (!ran_.exchange(false, std::memory_order_acq_rel)) return now - given_;
    given_ = now;
    lane.Post([this] { ran_.store(true, std::memory_order_release); });
    return absl::ZeroDuration();
  }

 private:
  std::atomic<bool> ran_ = true;
  absl::Time given_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
