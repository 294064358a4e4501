// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/step_size.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

// Steps of `rate` bytes a second, until they do not change any more.
size_t SettlesAt(double rate) {
  StepSize size;
  for (int i = 0; i < 20; ++i) {
    size.OnOver(size.bytes(), absl::Seconds(static_cast<double>(size.bytes()) / rate));
  }
  return size.bytes();
}

TEST(StepSizeTest, AStepTakesLessThanAMillisecondWhateverTheRoad) {
  EXPECT_EQ(SettlesAt(395e9), size_t{256} << 20);  // NVLink
  EXPECT_EQ(SettlesAt(55e9), size_t{32} << 20);    // PCIe 5
  EXPECT_EQ(SettlesAt(25e9), size_t{16} << 20);    // PCIe 4
  EXPECT_EQ(SettlesAt(1e9), StepSize::kLeast);
  EXPECT_EQ(SettlesAt(4e12), StepSize::kMost);
}

TEST(StepSizeTest, TheRestOfACopySaysNothing) {
  StepSize size;
  const size_t before = size.bytes();
  size.OnOver(before / 2, absl::Microseconds(1));
  size.OnOver(before - 1, absl::Seconds(1));
  EXPECT_EQ(size.bytes(), before);
}

}  // namespace
}  // namespace ferry
