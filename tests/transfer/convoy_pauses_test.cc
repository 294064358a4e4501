// SPDX-License-Identifier: Apache-2.0
#include "transfer/convoy_pauses.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

MatchKey Between(uint64_t source, uint64_t destination) {
  return {"job", GlobalDeviceId(source), GlobalDeviceId(destination), "key"};
}

TEST(ConvoyPausesTest, APauseIsOfTwoDevicesInBothDirections) {
  const absl::Time now = absl::UnixEpoch() + absl::Seconds(100);
  ConvoyPauses pauses;
  pauses.Pause(now, Between(0, 2), absl::Seconds(1));
  EXPECT_TRUE(pauses.Contains(now, Between(0, 2)));
  EXPECT_TRUE(pauses.Contains(now, Between(2, 0)));
  EXPECT_FALSE(pauses.Contains(now, Between(0, 3)));
  EXPECT_FALSE(pauses.Contains(now + absl::Seconds(1), Between(0, 2)));
}

TEST(ConvoyPausesTest, AShorterPauseDoesNotEndALongerOne) {
  const absl::Time now = absl::UnixEpoch() + absl::Seconds(100);
  ConvoyPauses pauses;
  pauses.Pause(now, Between(0, 2), absl::Minutes(1));
  pauses.Pause(now + absl::Seconds(1), Between(0, 2), absl::Seconds(1));
  EXPECT_TRUE(pauses.Contains(now + absl::Seconds(59), Between(0, 2)));
}

}  // namespace
}  // namespace ferry
