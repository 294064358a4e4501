// SPDX-License-Identifier: Apache-2.0
#include "transfer/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/status.h"
#include "tests/support/random_layout.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
constexpr ArenaId kArena(7);

bool Overflows(const absl::StatusOr<Layout>& layout) {
  return layout.status().code() == absl::StatusCode::kInvalidArgument &&
         ReasonOf(layout.status()) == Reason::kRangeInvalid;
}

TEST(LayoutTest, AListIsItsRanges) {
  const Layout none;
  EXPECT_EQ(none.bytes(), 0u);
  EXPECT_THAT(none.extents(), IsEmpty());
  EXPECT_EQ(none.block_count(), 0u);
  const Layout one{{kArena, 5, 3}};
  EXPECT_EQ(one.bytes(), 3u);
  EXPECT_THAT(one.extents(), ElementsAre(Range{kArena, 5, 3}));
  EXPECT_EQ(one.block(0), (Range{kArena, 5, 3}));
  const Layout two{{kArena, 5, 3}, {ArenaId(8), 0, 4}};
  EXPECT_EQ(two.bytes(), 7u);
  EXPECT_THAT(two.extents(), ElementsAre(Range{kArena, 5, 3}, Range{ArenaId(8), 0, 4}));
  EXPECT_EQ(two.block_count(), 2u);
  EXPECT_EQ(two.block(1), (Range{ArenaId(8), 0, 4}));
  EXPECT_EQ(two.blocks(), nullptr);
}

TEST(LayoutTest, TheSumOfRangesDoesNotWrapAround) {
  EXPECT_EQ((Layout{{kArena, 0, kMax}, {kArena, 0, 4097}}).bytes(), kMax);
}

TEST(LayoutTest, AStrideIsInTheRangeFromItsFirstBlockToItsLast) {
  const Layout layout = *Layout::Strided(kArena, 100, 8, 64, 5);
  EXPECT_EQ(layout.bytes(), 40u);
  EXPECT_THAT(layout.extents(), ElementsAre(Range{kArena, 100, 4 * 64 + 8}));
  EXPECT_EQ(layout.block_count(), 5u);
  EXPECT_EQ(layout.block(0), (Range{kArena, 100, 8}));
  EXPECT_EQ(layout.block(4), (Range{kArena, 356, 8}));
  EXPECT_FALSE(layout.blocks()->is_table);
}

TEST(LayoutTest, ATableIsInTheRangeFromItsLowestBlockToItsHighest) {
  const Layout layout = *Layout::BlockTable(kArena, 100, 16, {9, 3, 4});
  EXPECT_EQ(layout.bytes(), 48u);
  EXPECT_THAT(layout.extents(), ElementsAre(Range{kArena, 100 + 3 * 16, 7 * 16}));
  EXPECT_EQ(layout.block(0), (Range{kArena, 244, 16}));
  EXPECT_EQ(layout.block(1), (Range{kArena, 148, 16}));
  EXPECT_TRUE(layout.blocks()->is_table);
}

TEST(LayoutTest, NoBlocksAreZeroBytesThatStillNameTheirArena) {
  for (const Layout& layout :
       {*Layout::Strided(kArena, 100, 8, 64, 0), *Layout::BlockTable(kArena, 100, 8, {})}) {
    EXPECT_EQ(layout.bytes(), 0u);
    EXPECT_THAT(layout.extents(), ElementsAre(Range{kArena, 100, 0}));
    EXPECT_EQ(layout.block_count(), 0u);
  }
  EXPECT_EQ(Layout::Strided(kArena, 100, 0, 64, 3)->bytes(), 0u);
}

TEST(LayoutTest, WhatEndsBeyondAllNumbersIsRefused) {
  EXPECT_TRUE(Layout::Strided(kArena, kMax - 8, 8, 64, 1).ok());
  EXPECT_TRUE(Overflows(Layout::Strided(kArena, kMax - 7, 8, 64, 1)));
  EXPECT_TRUE(Overflows(Layout::Strided(kArena, 0, 8, kMax / 2, 4)));
  EXPECT_TRUE(Overflows(Layout::Strided(kArena, kMax, kMax, kMax, kMax)));
  EXPECT_TRUE(Overflows(Layout::BlockTable(kArena, 0, 8, {0, kMax})));
  EXPECT_TRUE(Overflows(Layout::BlockTable(kArena, 1, kMax, {0})));
  // Every block ends in time, but there are too many bytes in them.
  EXPECT_TRUE(Overflows(Layout::Strided(kArena, 0, uint64_t{1} << 63, 0, 2)));
  EXPECT_TRUE(Overflows(Layout::BlockTable(kArena, 0, uint64_t{1} << 62, {1, 1, 1, 1})));
}

TEST(LayoutTest, EqualIsWhatWasSaidAlike) {
  const Layout table = *Layout::BlockTable(kArena, 0, 16, {0, 1});
  EXPECT_EQ(table, *Layout::BlockTable(kArena, 0, 16, {0, 1}));
  EXPECT_FALSE(table == *Layout::BlockTable(kArena, 0, 16, {1, 0}));
  EXPECT_FALSE(table == *Layout::Strided(kArena, 0, 16, 16, 2));
  EXPECT_FALSE(table == (Layout{{kArena, 0, 32}}));
  EXPECT_FALSE(Layout() == (Layout{{kArena, 0, 0}}));
  EXPECT_EQ((Layout{{kArena, 0, 1}, {kArena, 4, 1}}), (Layout{{kArena, 0, 1}, {kArena, 4, 1}}));
}

TEST(LayoutTest, ACopySharesItsTable) {
  const Layout table = *Layout::BlockTable(kArena, 0, 16, std::vector<uint64_t>(10'000, 3));
  const Layout copy = table;
  EXPECT_EQ(copy.blocks(), table.blocks());
}

TEST(LayoutTest, ExtentsAreAsSmallAsTheyCanBe) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t bytes = 1 + random() % 200;
    const Layout layout = RandomLayout(random, kArena, 1000, bytes);
    auto places = Places(layout);
    ASSERT_EQ(places.size(), bytes);
    if (layout.blocks() == nullptr) continue;
    const auto [least, most] = std::minmax_element(places.begin(), places.end());
    EXPECT_THAT(layout.extents(),
                ElementsAre(Range{kArena, least->second, most->second + 1 - least->second}));
  }
}

}  // namespace
}  // namespace ferry
