// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/time_quota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ferry {
namespace {

using ::testing::HasSubstr;

class TimeQuotaTest : public ::testing::Test {
 protected:
  void Take(uint32_t uid, absl::Duration time) {
    now_ += time;
    quotas_.Of(uid).Charge(now_, time);
  }
  TimeQuota& quota() { return quotas_.Of(1000); }

  TimeQuotas quotas_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

TEST_F(TimeQuotaTest, WithoutALimitTimeIsCountedAndNobodyWaits) {
  for (int i = 0; i < 100; ++i) Take(1000, absl::Seconds(1));
  EXPECT_FALSE(quota().IsOver(now_));
  EXPECT_EQ(quota().until(), absl::InfinitePast());
  EXPECT_EQ(quota().taken(), absl::Seconds(100));
  EXPECT_EQ(quotas_.Of(1001).taken(), absl::ZeroDuration());
}

TEST_F(TimeQuotaTest, WhatWasMoreThanTheShareIsMadeUpForByWaiting) {
  quotas_.SetShare(absl::Milliseconds(100));
  EXPECT_FALSE(quota().IsOver(now_));
  const absl::Time begun = now_;
  Take(1000, absl::Milliseconds(300));
  EXPECT_EQ(quota().until(), begun + absl::Seconds(2)) << "a second was paid in advance";
  EXPECT_TRUE(quota().IsOver(now_));
  EXPECT_THAT(quota().TextOf(now_),
              HasSubstr("100 ms a second (limits.gpu_ms_per_second), for 1.7"));
  EXPECT_FALSE(quota().IsOver(begun + absl::Seconds(2)));
  EXPECT_FALSE(quotas_.Of(1001).IsOver(now_)) << "another user";
}

TEST_F(TimeQuotaTest, InTheLongRunAUserHasHisShare) {
  quotas_.SetShare(absl::Milliseconds(250));
  const absl::Time begun = now_;
  for (int i = 0; i < 1000; ++i) {
    now_ = std::max(now_, quota().until());
    Take(1000, absl::Milliseconds(1 + i % 40));
  }
  const double share = absl::FDivDuration(quota().taken(), std::max(now_, quota().until()) - begun);
  EXPECT_NEAR(share, 0.25, 0.01);
}

TEST_F(TimeQuotaTest, WhoWasIdleHasTheShareOfOneSecondAtOnceAndNoMore) {
  quotas_.SetShare(absl::Milliseconds(100));
  now_ += absl::Hours(1);
  Take(1000, absl::Milliseconds(99));
  EXPECT_FALSE(quota().IsOver(now_));
  Take(1000, absl::Milliseconds(99));
  EXPECT_TRUE(quota().IsOver(now_));
}

TEST_F(TimeQuotaTest, AnotherShareForgivesWhatWasTaken) {
  quotas_.SetShare(absl::Milliseconds(1));
  Take(1000, absl::Seconds(100));
  EXPECT_TRUE(quota().IsOver(now_ + absl::Hours(1)));
  quotas_.SetShare(absl::Milliseconds(1));
  EXPECT_TRUE(quota().IsOver(now_)) << "it is the same";
  quotas_.SetShare(absl::Milliseconds(2));
  EXPECT_FALSE(quota().IsOver(now_));
  EXPECT_EQ(quota().taken(), absl::Seconds(100));
}

}  // namespace
}  // namespace ferry
