// SPDX-License-Identifier: Apache-2.0
#include "transfer/overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "base/status.h"
#include "tests/support/random_layout.h"

namespace ferry {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr ArenaId kOnlyArena(1);

std::vector<Overlap> Find(const std::vector<Layout>& layouts) {
  std::vector<const Layout*> pointers;
  for (const Layout& layout : layouts) pointers.push_back(&layout);
  return *FindOverlaps(pointers);
}

Layout Strided(uint64_t offset, uint64_t block, uint64_t stride, uint64_t count) {
  return *Layout::Strided(kOnlyArena, offset, block, stride, count);
}

TEST(OverlapTest, ColumnsOfOneMatrixDoNotMeet) {
  // 2^20 rows of 64 columns.
  std::vector<Layout> columns;
  for (uint64_t i = 0; i < 64; ++i) columns.push_back(Strided(i * 16, 16, 1024, kMaxBlocks));
  EXPECT_THAT(Find(columns), IsEmpty());
  columns.push_back(Strided(63 * 16 + 15 + (kMaxBlocks - 1) * 1024, 1, 1, 1));
  const std::vector<Overlap> found = Find(columns);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].first, 63u);
  EXPECT_EQ(found[0].second, 64u);
  EXPECT_EQ(found[0].offset, kMaxBlocks * 1024 - 1);
}

TEST(OverlapTest, StridesThatMeetOnceInAMillionAreFound) {
  // Blocks of one byte at i * 1009 and 1 + j * 1013: they meet where 1009 i = 1013 j + 1.
  const Layout a = Strided(0, 1, 1009, kMaxBlocks);
  const Layout b = Strided(1, 1, 1013, kMaxBlocks);
  const std::vector<Overlap> found = Find({a, b});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].offset % 1009, 0u);
  EXPECT_EQ(found[0].offset % 1013, 1u);
  // Both strides are even, one begins at an odd place.
  EXPECT_THAT(Find({Strided(0, 1, 1010, kMaxBlocks), Strided(1, 1, 1014, kMaxBlocks)}), IsEmpty());
  EXPECT_THAT(Find({Strided(0, 2, 1010, kMaxBlocks), Strided(1, 1, 1014, kMaxBlocks)}), SizeIs(1));
}

TEST(OverlapTest, LargeNumbersDoNotWrap) {
  const uint64_t huge = uint64_t{1} << 43;
  EXPECT_THAT(
      Find({Strided(0, huge - 1, huge, kMaxBlocks), Strided(huge - 1, 1, huge, kMaxBlocks)}),
      IsEmpty());
  EXPECT_THAT(
      Find({Strided(0, huge - 1, huge, kMaxBlocks), Strided(huge - 1, 1, huge + 1, kMaxBlocks)}),
      SizeIs(1));
}

TEST(OverlapTest, AStrideShorterThanItsBlockMeetsItself) {
  EXPECT_THAT(Find({Strided(0, 8, 7, 2)}), SizeIs(1));
  EXPECT_THAT(Find({Strided(0, 8, 0, 2)}), SizeIs(1));
  EXPECT_THAT(Find({Strided(0, 8, 8, 2)}), IsEmpty());
  EXPECT_THAT(Find({Strided(0, 8, 0, 1)}), IsEmpty());
}

TEST(OverlapTest, ATableWithABlockTwiceMeetsItself) {
  EXPECT_THAT(Find({*Layout::BlockTable(kOnlyArena, 0, 8, {4, 1, 9, 1})}), SizeIs(1));
  EXPECT_THAT(Find({*Layout::BlockTable(kOnlyArena, 0, 8, {4, 1, 9, 2})}), IsEmpty());
}

TEST(OverlapTest, ArenasAreApart) {
  EXPECT_THAT(Find({Strided(0, 8, 16, 9), *Layout::Strided(ArenaId(2), 0, 8, 16, 9),
                    *Layout::BlockTable(ArenaId(3), 0, 8, {0, 1, 2})}),
              IsEmpty());
}

TEST(OverlapTest, ABatchThatWouldTakeLongIsRefused) {
  std::vector<Layout> layouts;
  for (uint64_t i = 0; i < 1024; ++i) layouts.push_back(Strided(i, 1, 8192 + i, 4096));
  std::vector<uint64_t> indices(20'000);
  std::iota(indices.begin(), indices.end(), 100);
  layouts.push_back(*Layout::BlockTable(kOnlyArena, 0, 1024, indices));
  std::vector<const Layout*> pointers;
  for (const Layout& layout : layouts) pointers.push_back(&layout);
  EXPECT_EQ(ReasonOf(FindOverlaps(pointers).status()), Reason::kBatchTooLarge);
}

TEST(OverlapTest, AFullBatchOfInterleavedStridesIsCompared) {
  std::vector<Layout> columns;
  for (uint64_t i = 0; i < 4096; ++i) columns.push_back(Strided(i, 1, 4096, 100));
  EXPECT_THAT(Find(columns), IsEmpty());
}

// Against marking every byte: the same layouts are found to share some with an earlier one or with
// themselves, and the byte that is named is one that both have.
TEST(OverlapTest, RandomLayoutsAgainstMarkingEveryByte) {
  std::mt19937_64 random(3);
  size_t apart = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<Layout> layouts;
    const size_t count = 1 + random() % 4;
    for (size_t i = 0; i < count; ++i) {
      const ArenaId arena(1 + random() % 8 / 7);
      const uint64_t block = 1 + random() % 5;
      switch (random() % 3) {
        case 0:
          layouts.push_back(
              Layout{{arena, random() % 300, random() % 4}, {arena, random() % 300, random() % 4}});
          break;
        case 1:
          layouts.push_back(*Layout::Strided(arena, random() % 100, block,
                                             random() % 8 == 0   ? random() % 4
                                             : random() % 2 == 0 ? 16
                                                                 : 7 + random() % 40,
                                             random() % 12));
          break;
        default: {
          std::vector<uint64_t> indices(random() % 4);
          for (uint64_t& index : indices) index = random() % (300 / block);
          layouts.push_back(*Layout::BlockTable(arena, random() % 5, block, indices));
        }
      }
    }
    std::map<std::pair<uint64_t, uint64_t>, std::vector<size_t>> owners;
    for (size_t i = 0; i < count; ++i) {
      for (const auto& place : Places(layouts[i])) owners[place].push_back(i);
    }
    const bool expected = std::any_of(owners.begin(), owners.end(),
                                      [](const auto& entry) { return entry.second.size() > 1; });
    const std::vector<Overlap> found = Find(layouts);
    ASSERT_EQ(!found.empty(), expected) << round;
    apart += expected ? 0 : 1;
    for (const Overlap& overlap : found) {
      std::vector<size_t> both = owners[{overlap.arena.value(), overlap.offset}];
      for (const size_t which : {overlap.first, overlap.second}) {
        const auto it = std::find(both.begin(), both.end(), which);
        ASSERT_NE(it, both.end()) << round;
        both.erase(it);  // of one layout: it has the byte twice
      }
      const Range first = layouts[overlap.first].block(overlap.first_block);
      const Range second = layouts[overlap.second].block(overlap.second_block);
      for (const Range& block : {first, second}) {
        EXPECT_EQ(block.arena, overlap.arena) << round;
        EXPECT_LE(block.offset, overlap.offset) << round;
        EXPECT_LT(overlap.offset - block.offset, block.length) << round;
      }
      EXPECT_FALSE(overlap.first == overlap.second && overlap.first_block == overlap.second_block);
    }
  }
  EXPECT_GT(apart, 2000u);
  EXPECT_LT(apart, 18'000u);
}

TEST(OverlapTest, RangesOfAUnionMeetWhatHasAByteOfThem) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const ArenaId a(1), b(2);
  const std::vector<Range> all =
      Union({{b, 0, 4}, {a, 30, 10}, {a, 20, 5}, {a, 24, 6}, {a, 50, 0}, {a, 22, 1}, {b, 8, kMax}});
  EXPECT_EQ(all, (std::vector<Range>{{a, 20, 20}, {b, 0, 4}, {b, 8, kMax}}));
  for (const Range& range : {Range{a, 0, 21}, {a, 39, 1}, {a, 0, kMax}, {b, 3, 5}, {b, 9, 1}}) {
    EXPECT_TRUE(Meets(all, range)) << range.offset << " " << range.length;
  }
  for (const Range& range : {Range{a, 0, 20}, {a, 40, 99}, {a, 25, 0}, {b, 4, 4}}) {
    EXPECT_FALSE(Meets(all, range)) << range.offset << " " << range.length;
  }
  EXPECT_FALSE(Meets(Union({}), {a, 0, 1}));
}

}  // namespace
}  // namespace ferry
