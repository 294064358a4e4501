// SPDX-License-Identifier: Apache-2.0
#include "compute/numerics/scale_layout.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace ferry::compute {
namespace {

using Bytes = std::vector<std::byte>;

uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// The other definition: pad, reshape to [R/128, 4, 32, C/4, 4], transpose to [R/128, C/4, 32, 4,
// 4].
Bytes Transposed(const Bytes& plain, uint64_t rows, uint64_t columns) {
  const uint64_t padded_rows = RoundUp(rows, 128), padded_columns = RoundUp(columns, 4);
  Bytes padded(padded_rows * padded_columns);
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < columns; ++c) padded[r * padded_columns + c] = plain[r * columns + c];
  }
  Bytes out;
  for (uint64_t a = 0; a < padded_rows / 128; ++a) {
    for (uint64_t d = 0; d < padded_columns / 4; ++d) {
      for (uint64_t c = 0; c < 32; ++c) {
        for (uint64_t b = 0; b < 4; ++b) {
          for (uint64_t e = 0; e < 4; ++e) {
            out.push_back(padded[(((a * 4 + b) * 32 + c) * (padded_columns / 4) + d) * 4 + e]);
          }
        }
      }
    }
  }
  return out;
}

TEST(ScaleLayoutTest, SwizzlingIsAReshapeAndATranspose) {
  std::mt19937 random(50);
  for (const uint64_t rows : {0, 1, 127, 128, 129, 300}) {
    for (const uint64_t columns : {0, 1, 3, 4, 5, 9}) {
      Bytes plain(rows * columns);
      for (std::byte& scale : plain) scale = static_cast<std::byte>(1 + random() % 255);
      Bytes swizzled(SwizzledScaleBytes(rows, columns), std::byte{0xEE});
      SwizzleScales(plain.data(), rows, columns, swizzled.data());
      EXPECT_EQ(swizzled, Transposed(plain, rows, columns)) << rows << " x " << columns;
      Bytes back(plain.size());
      UnswizzleScales(swizzled.data(), rows, columns, back.data());
      EXPECT_EQ(back, plain) << rows << " x " << columns;
      // Every scale has a place of its own; all others are padding, which is 0.
      std::set<uint64_t> places;
      for (uint64_t r = 0; r < rows; ++r) {
        for (uint64_t c = 0; c < columns; ++c) places.insert(SwizzledScaleOffset(r, c, columns));
      }
      EXPECT_EQ(places.size(), plain.size());
      for (uint64_t i = 0; i < swizzled.size(); ++i) {
        EXPECT_EQ(swizzled[i] != std::byte{0}, places.count(i) == 1) << i;
      }
    }
  }
}

TEST(ScaleLayoutTest, PlacesByHand) {
  EXPECT_EQ(SwizzledScaleBytes(129, 5), 256u * 8u);
  EXPECT_EQ(SwizzledScaleOffset(0, 3, 8), 3u);
  EXPECT_EQ(SwizzledScaleOffset(32, 0, 8), 4u);
  EXPECT_EQ(SwizzledScaleOffset(1, 0, 8), 16u);
  EXPECT_EQ(SwizzledScaleOffset(127, 3, 8), 511u);
  EXPECT_EQ(SwizzledScaleOffset(0, 4, 8), 512u);
  EXPECT_EQ(SwizzledScaleOffset(128, 0, 8), 1024u);
}

}  // namespace
}  // namespace ferry::compute
