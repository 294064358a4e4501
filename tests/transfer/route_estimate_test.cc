// SPDX-License-Identifier: Apache-2.0
#include "transfer/route_estimate.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class RouteEstimateTest : public testing::Test {
 protected:
  void Run(uint64_t bytes, absl::Duration took, bool moved = true) {
    estimate_.OnLaunch(now_);
    now_ += took;
    estimate_.OnDone(now_, bytes, moved);
  }
  void RunMany(uint64_t bytes, absl::Duration took) {
    for (uint32_t i = 0; i < RouteEstimate::kEnough; ++i) Run(bytes, took);
  }

  std::optional<absl::Duration> TimeFor(uint64_t bytes) const {
    const std::optional<RouteTime> time = estimate_.TimeFor(bytes);
    if (!time) return std::nullopt;
    EXPECT_TRUE(time->measured);
    return time->time;
  }

  RouteEstimate estimate_;
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(RouteEstimateTest, SaysNothingBeforeItWasMeasuredOftenEnough) {
  for (uint32_t i = 1; i < RouteEstimate::kEnough; ++i) Run(8, absl::Microseconds(10));
  EXPECT_EQ(TimeFor(8), std::nullopt);
  Run(8, absl::Microseconds(10));
  EXPECT_EQ(TimeFor(8), absl::Microseconds(10));
  EXPECT_EQ(TimeFor(RouteEstimate::kLatencyBytes), absl::Microseconds(10));
  EXPECT_EQ(TimeFor(kMiB), std::nullopt);
}

TEST_F(RouteEstimateTest, LargeOnesAreLatencyAndBandwidth) {
  RunMany(8, absl::Microseconds(10));
  RunMany(10 * kMiB, absl::Microseconds(1010));
  EXPECT_NEAR(*estimate_.bytes_per_second(), 10e3 * kMiB, 1);
  EXPECT_NEAR(absl::ToDoubleMicroseconds(*TimeFor(20 * kMiB)), 2010, 0.1);
}

TEST_F(RouteEstimateTest, LaunchesThatRunAtOnceShareOneMeasurement) {
  for (uint32_t round = 0; round < RouteEstimate::kEnough; ++round) {
    for (int i = 0; i < 10; ++i) estimate_.OnLaunch(now_);
    for (int i = 0; i < 10; ++i) {
      now_ += absl::Milliseconds(1);
      estimate_.OnDone(now_, kMiB, true);
    }
    now_ += absl::Seconds(1);  // idle: not the route's time
  }
  EXPECT_NEAR(*estimate_.bytes_per_second(), 1e3 * kMiB, 1);
  EXPECT_EQ(estimate_.latency(), std::nullopt);
}

// A thousand small ones take as long as their posting and starting takes.
TEST_F(RouteEstimateTest, ManySmallOnesSayNothingOfABandwidth) {
  RunMany(10 * kMiB, absl::Milliseconds(1));
  for (uint32_t round = 0; round < 4 * RouteEstimate::kEnough; ++round) {
    for (int i = 0; i < 1000; ++i) estimate_.OnLaunch(now_);
    now_ += absl::Milliseconds(10);
    for (int i = 0; i < 1000; ++i) estimate_.OnDone(now_, 64 << 10, true);
  }
  EXPECT_NEAR(*estimate_.bytes_per_second(), 10e3 * kMiB, 1);
}

TEST_F(RouteEstimateTest, WhatFailedIsNoMeasurement) {
  for (uint32_t i = 0; i < RouteEstimate::kEnough; ++i) Run(8, absl::Microseconds(1), false);
  EXPECT_EQ(estimate_.latency(), std::nullopt);
  EXPECT_TRUE(estimate_.idle());
}

TEST_F(RouteEstimateTest, WhatIsDoneOnceIsNoPartOfALatency) {
  Run(8, absl::Milliseconds(300));  // a communicator is opened
  for (uint32_t i = 1; i < RouteEstimate::kEnough; ++i) Run(8, absl::Microseconds(200));
  EXPECT_NEAR(absl::ToDoubleMicroseconds(*estimate_.latency()), 200, 0.1);
  Run(8, absl::Microseconds(600));  // from now on each counts
  EXPECT_NEAR(absl::ToDoubleMicroseconds(*estimate_.latency()), 250, 0.1);
}

TEST_F(RouteEstimateTest, WhatIsDoneOnceIsNoPartOfABandwidth) {
  Run(10 * kMiB, absl::Milliseconds(300));
  for (uint32_t i = 1; i < RouteEstimate::kEnough; ++i) Run(10 * kMiB, absl::Milliseconds(1));
  EXPECT_NEAR(*estimate_.bytes_per_second(), 10e3 * kMiB, 1);
}

TEST_F(RouteEstimateTest, AFewSmallOnesAreNoPartOfWhatALargeOneTakes) {
  Run(8, absl::Milliseconds(300));
  RunMany(10 * kMiB, absl::Milliseconds(1));
  EXPECT_EQ(estimate_.latency(), std::nullopt);
  EXPECT_NEAR(*estimate_.bytes_per_second(), 10e3 * kMiB, 1);
  EXPECT_NEAR(absl::ToDoubleMicroseconds(*TimeFor(10 * kMiB)), 1000, 0.1);
}

TEST_F(RouteEstimateTest, FollowsWhatChangesAndForgetsWhatItIsTold) {
  RunMany(8, absl::Microseconds(10));
  for (int i = 0; i < 100; ++i) Run(8, absl::Microseconds(30));
  EXPECT_NEAR(absl::ToDoubleMicroseconds(*TimeFor(8)), 30, 0.1);
  estimate_.OnLaunch(now_);
  estimate_.Forget();
  estimate_.OnDone(now_ + absl::Seconds(9), 8, true);  // began before
  EXPECT_EQ(TimeFor(8), std::nullopt);
  RunMany(8, absl::Microseconds(5));
  EXPECT_NEAR(absl::ToDoubleMicroseconds(*TimeFor(8)), 5, 0.01);
}

TEST_F(RouteEstimateTest, APriorHoldsUntilWhatMattersIsMeasured) {
  const RoutePrior prior = {absl::Microseconds(100), 1e9};
  EXPECT_EQ(estimate_.TimeFor(8, &prior)->time, absl::Microseconds(100));
  EXPECT_EQ(estimate_.TimeFor(10'000'000, &prior)->time, absl::Microseconds(10'100));
  EXPECT_FALSE(estimate_.TimeFor(8, &prior)->measured);
  RunMany(8, absl::Microseconds(10));
  EXPECT_EQ(estimate_.TimeFor(8, &prior)->time, absl::Microseconds(10));
  EXPECT_TRUE(estimate_.TimeFor(8, &prior)->measured);
  // Of large ones the bandwidth still is the prior's.
  EXPECT_EQ(estimate_.TimeFor(10'000'000, &prior)->time, absl::Microseconds(10'010));
  EXPECT_FALSE(estimate_.TimeFor(10'000'000, &prior)->measured);
  RunMany(10'000'000, absl::Microseconds(510));
  EXPECT_TRUE(estimate_.TimeFor(10'000'000, &prior)->measured);
  EXPECT_NEAR(absl::ToDoubleMicroseconds(estimate_.TimeFor(10'000'000, &prior)->time), 510, 0.1);
}

}  // namespace
}  // namespace ferry
