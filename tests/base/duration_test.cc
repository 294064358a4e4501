// SPDX-License-Identifier: Apache-2.0
#include "base/duration.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(Duration, TextHasThreeDigitsAndAUnitThatFits) {
  EXPECT_EQ(DurationText(absl::ZeroDuration()), "0 s");
  EXPECT_EQ(DurationText(absl::Nanoseconds(1)), "1 ns");
  EXPECT_EQ(DurationText(absl::Nanoseconds(999)), "999 ns");
  EXPECT_EQ(DurationText(absl::Microseconds(45)), "45 us");
  EXPECT_EQ(DurationText(absl::Nanoseconds(45'120)), "45.1 us");
  EXPECT_EQ(DurationText(absl::Milliseconds(250)), "250 ms");
  EXPECT_EQ(DurationText(absl::Microseconds(316'953)), "316.95 ms");
  EXPECT_EQ(DurationText(absl::Microseconds(12'500)), "12.5 ms");
  EXPECT_EQ(DurationText(absl::Milliseconds(1500)), "1.5 s");
  EXPECT_EQ(DurationText(absl::Milliseconds(1234)), "1.23 s");
  EXPECT_EQ(DurationText(absl::Milliseconds(12'345)), "12.3 s");
  EXPECT_EQ(DurationText(absl::Seconds(10)), "10 s");
  EXPECT_EQ(DurationText(absl::Seconds(118)), "118 s");
}

TEST(Duration, LongOnesHaveTwoUnits) {
  EXPECT_EQ(DurationText(absl::Seconds(125)), "2 min 5 s");
  EXPECT_EQ(DurationText(absl::Minutes(10)), "10 min");
  EXPECT_EQ(DurationText(absl::Hours(2)), "2 h");
  EXPECT_EQ(DurationText(absl::Minutes(150)), "2 h 30 min");
  EXPECT_EQ(DurationText(absl::Hours(76)), "3 d 4 h");
  EXPECT_EQ(DurationText(absl::Hours(24 * 365)), "365 d");
}

TEST(Duration, RoundingDoesNotGiveAThousandOfAUnit) {
  EXPECT_EQ(DurationText(absl::Nanoseconds(999'960)), "1 ms");
  EXPECT_EQ(DurationText(absl::Nanoseconds(999'999'999)), "1 s");
  EXPECT_EQ(DurationText(absl::Milliseconds(9'999)), "10 s");
  EXPECT_EQ(DurationText(absl::Milliseconds(99'990)), "100 s");
}

TEST(Duration, WhatHasNoLength) {
  EXPECT_EQ(DurationText(absl::InfiniteDuration()), "for ever");
  EXPECT_EQ(DurationText(-absl::Seconds(5)), "-5 s");
  EXPECT_EQ(DurationText(-absl::InfiniteDuration()), "-for ever");
}

}  // namespace
}  // namespace ferry
