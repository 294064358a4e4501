// SPDX-License-Identifier: Apache-2.0
#include "transfer/unmapped_arenas.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();
const Clique kPair = CliqueOf(GlobalDeviceId(0), GlobalDeviceId(2));
const Clique kOther = CliqueOf(GlobalDeviceId(1), GlobalDeviceId(2));

Layout In(std::initializer_list<uint64_t> arenas) {
  std::vector<Range> extents;
  for (const uint64_t arena : arenas) extents.push_back({ArenaId(arena), 64, 4096});
  return Layout(std::move(extents));
}

TEST(UnmappedArenas, IsOfAPairAndOfWhatTouchesTheArena) {
  UnmappedArenas unmapped;
  EXPECT_FALSE(unmapped.Contains(kStart, kPair, In({1})));
  unmapped.OnRefused(kStart, kPair, In({1, 2}), "no memory");
  EXPECT_TRUE(unmapped.Contains(kStart, kPair, In({2})));
  EXPECT_TRUE(unmapped.Contains(kStart, kPair, In({3, 1})));
  EXPECT_FALSE(unmapped.Contains(kStart, kPair, In({3})));
  EXPECT_FALSE(unmapped.Contains(kStart, kOther, In({1})));
  ASSERT_NE(unmapped.Find(kPair), nullptr);
  EXPECT_EQ(unmapped.Find(kPair)->why, "no memory");
  unmapped.Clear();
  EXPECT_FALSE(unmapped.Contains(kStart, kPair, In({1})));
  EXPECT_EQ(unmapped.Find(kPair), nullptr);
}

TEST(UnmappedArenas, OneTriesAgainAndTheOthersWaitForItsWord) {
  UnmappedArenas unmapped;
  unmapped.OnRefused(kStart, kPair, In({1}), "no memory");
  const absl::Time again = kStart + UnmappedArenas::kTriedAgainAfter;
  EXPECT_TRUE(unmapped.Contains(again - absl::Nanoseconds(1), kPair, In({1})));
  EXPECT_FALSE(unmapped.Contains(again, kPair, In({1})));
  unmapped.OnTry(again, kPair, In({1, 7}));
  EXPECT_TRUE(unmapped.Contains(again, kPair, In({1})));
  EXPECT_FALSE(unmapped.Contains(again, kPair, In({7}))) << "that was never refused";
  unmapped.OnReached(kPair, In({1, 7}));
  EXPECT_FALSE(unmapped.Contains(again, kPair, In({1})));
  EXPECT_EQ(unmapped.Find(kPair), nullptr);
}

TEST(UnmappedArenas, WhatIsRefusedAgainAndAgainIsTriedLessAndLess) {
  UnmappedArenas unmapped;
  absl::Time now = kStart;
  absl::Duration wait = UnmappedArenas::kTriedAgainAfter;
  for (int i = 0; i < 10; ++i) {
    unmapped.OnRefused(now, kPair, In({1}), "no peer access");
    EXPECT_TRUE(unmapped.Contains(now + wait - absl::Nanoseconds(1), kPair, In({1})));
    EXPECT_FALSE(unmapped.Contains(now + wait, kPair, In({1})));
    now += wait;
    wait = std::min(2 * wait, UnmappedArenas::kLongest);
  }
  EXPECT_EQ(wait, UnmappedArenas::kLongest);
  unmapped.OnReached(kPair, In({1}));
  unmapped.OnRefused(now, kPair, In({1}), "no memory");
  EXPECT_FALSE(unmapped.Contains(now + UnmappedArenas::kTriedAgainAfter, kPair, In({1})));
}

TEST(UnmappedArenas, IsBounded) {
  UnmappedArenas unmapped;
  for (uint64_t i = 0; i < 3 * UnmappedArenas::kMost; ++i) {
    unmapped.OnRefused(kStart, kPair, In({i}), "no memory");
    ASSERT_LE(unmapped.Find(kPair)->arenas.size(), UnmappedArenas::kMost);
    ASSERT_TRUE(unmapped.Contains(kStart, kPair, In({i})));
  }
}

}  // namespace
}  // namespace ferry
