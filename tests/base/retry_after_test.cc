// SPDX-License-Identifier: Apache-2.0
#include "base/retry_after.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(RetryAfterTest, WithoutAnyEndingItSaysTheDefault) {
  EXPECT_EQ(RetryAfter().For(kStart, 7), RetryAfter::kUnknown);
}

TEST(RetryAfterTest, IsThePlacesWantedByTheRateAtWhichTheyBecameFree) {
  RetryAfter places;
  absl::Time now = kStart;
  for (int i = 0; i < 10'000; ++i, now += absl::Milliseconds(1))
    places.OnFreed(now);  // 1,000 a second
  EXPECT_NEAR(absl::ToDoubleMilliseconds(places.For(now, 10)), 10, 0.5);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(places.For(now, 1000)), 1000, 50);
  for (int i = 0; i < 100; ++i, now += absl::Milliseconds(100))
    places.OnFreed(now, 100);  // the same
  EXPECT_NEAR(absl::ToDoubleMilliseconds(places.For(now, 10)), 10, 1);
}

TEST(RetryAfterTest, IsBoundedAtBothEnds) {
  RetryAfter places;
  places.OnFreed(kStart, 1'000'000);
  EXPECT_EQ(places.For(kStart, 1), RetryAfter::kLeast);
  EXPECT_EQ(places.For(kStart, uint64_t{1} << 60), RetryAfter::kMost);
  EXPECT_EQ(places.For(kStart + absl::Hours(1), 1), RetryAfter::kMost);  // nothing ends any more
}

}  // namespace
}  // namespace ferry
