// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/step_size.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

// Steps of `rate` bytes a second, so many under way at once, until they do not change any more.
// Those under way share the road: they are all over at once.
size_t SettlesAt(double rate, int under_way) {
  StepSize size;
  absl::Time now;
  size.OnFirst(now);
  for (int i = 0; i < 40; ++i) {
    const size_t bytes = size.bytes();
    now += absl::Seconds(static_cast<double>(bytes) * under_way / rate);
    for (int step = 0; step < under_way; ++step) size.OnOver(bytes, now);
  }
  const size_t settled = size.bytes();
  for (int i = 0; i < 4; ++i) {
    now += absl::Seconds(static_cast<double>(settled) * under_way / rate);
    for (int step = 0; step < under_way; ++step) size.OnOver(settled, now);
    EXPECT_EQ(size.bytes(), settled);
  }
  return settled;
}

TEST(StepSizeTest, AStepTakesLessThanAMillisecondWhateverTheRoad) {
  for (int under_way : {1, 2}) {
    EXPECT_EQ(SettlesAt(395e9, under_way), size_t{256} << 20);  // NVLink
    EXPECT_EQ(SettlesAt(55e9, under_way), size_t{32} << 20);    // PCIe 5
    EXPECT_EQ(SettlesAt(25e9, under_way), size_t{16} << 20);    // PCIe 4
    EXPECT_EQ(SettlesAt(1e9, under_way), StepSize::kLeast);
    EXPECT_EQ(SettlesAt(4e12, under_way), StepSize::kMost);
  }
}

TEST(StepSizeTest, TheRestOfACopySaysNothing) {
  StepSize size;
  const size_t before = size.bytes();
  absl::Time now;
  size.OnFirst(now);
  for (int i = 0; i < 4; ++i) {
    size.OnOver(before, now += absl::Microseconds(1));
    size.OnOver(before / 2, now += absl::Seconds(1));
  }
  EXPECT_EQ(size.bytes(), before);
}

TEST(StepSizeTest, NorDoesAPause) {
  StepSize size;
  const size_t before = size.bytes();
  absl::Time now;
  for (int i = 0; i < 4; ++i) {
    size.OnFirst(now += absl::Seconds(1));
    size.OnOver(before, now += absl::Microseconds(500));
  }
  EXPECT_EQ(size.bytes(), before);
}

}  // namespace
}  // namespace ferry
