// SPDX-License-Identifier: Apache-2.0
#include "daemon/lane_pulse.h"

#include <gtest/gtest.h>

#include "tests/daemon/home.h"

namespace ferry {
namespace {

TEST(LanePulse, ALaneIsSilentSinceItWasGivenWhatItHasNotRun) {
  testing::ManualExecutor lane;
  LanePulse pulse;
  const absl::Time start = lane.Now();
  EXPECT_EQ(pulse.Silent(lane, start), absl::ZeroDuration()) << "nothing was asked of it before";
  EXPECT_EQ(pulse.Silent(lane, start + absl::Seconds(5)), absl::Seconds(5));
  EXPECT_EQ(pulse.Silent(lane, start + absl::Seconds(9)), absl::Seconds(9));
  EXPECT_EQ(lane.RunAll(), 1u) << "who looks again and again fills no queue";
  EXPECT_EQ(pulse.Silent(lane, start + absl::Seconds(60)), absl::ZeroDuration());
  EXPECT_EQ(pulse.Silent(lane, start + absl::Seconds(61)), absl::Seconds(1)) << "since then";
}

}  // namespace
}  // namespace ferry
