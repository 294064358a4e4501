// SPDX-License-Identifier: Apache-2.0
#include "transfer/clique/group_cutter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr GroupCutter::Options kSmallOptions = {
    .group_bytes = 100, .group_chunks = 4, .age = absl::Milliseconds(2), .chunk_bytes = 20};
const absl::Time kNow = absl::UnixEpoch();

PairName Pair(uint64_t id) { return {false, TransferId(id)}; }
Chunk Part(uint64_t id, uint64_t offset, uint64_t bytes) { return {Pair(id), offset, bytes}; }

TEST(GroupCutterTest, SmallOnesGoWholeInTheOrderOfPriorityAndPosting) {
  GroupCutter cutter(kSmallOptions);
  EXPECT_TRUE(cutter.Add(kNow, Pair(1), 10, 0));
  EXPECT_TRUE(cutter.Add(kNow, Pair(2), 0, 0));
  EXPECT_TRUE(cutter.Add(kNow, Pair(3), 20, 5));
  EXPECT_FALSE(cutter.Add(kNow, Pair(1), 10, 0));
  EXPECT_THAT(cutter.Cut(), ElementsAre(Part(3, 0, 20), Part(1, 0, 10), Part(2, 0, 0)));
  EXPECT_TRUE(cutter.empty());
  EXPECT_THAT(cutter.Cut(), IsEmpty());
}

TEST(GroupCutterTest, AGroupIsFullByBytesOrCount) {
  GroupCutter cutter(kSmallOptions);
  cutter.Add(kNow, Pair(1), 99, 0);
  EXPECT_FALSE(cutter.Full());
  cutter.Add(kNow, Pair(2), 1, 0);
  EXPECT_TRUE(cutter.Full());
  EXPECT_TRUE(cutter.Remove(Pair(2)));
  EXPECT_FALSE(cutter.Full());
  for (uint64_t id = 3; id < 6; ++id) cutter.Add(kNow, Pair(id), 0, 0);
  EXPECT_TRUE(cutter.Full());
  EXPECT_EQ(cutter.Cut().size(), 4u);
}

TEST(GroupCutterTest, ASmallOneNeverWaitsBehindALargeOne) {
  GroupCutter cutter(kSmallOptions);
  cutter.Add(kNow, Pair(1), 1000, 9);
  EXPECT_THAT(cutter.Cut(), ElementsAre(Part(1, 0, 100)));
  cutter.Add(kNow, Pair(2), 20, 0);
  EXPECT_THAT(cutter.Cut(), ElementsAre(Part(2, 0, 20), Part(1, 100, 80)));
}

TEST(GroupCutterTest, SmallOnesLeavePlaceForAChunkOfALargeOne) {
  GroupCutter cutter(kSmallOptions);
  cutter.Add(kNow, Pair(1), 30, 0);
  for (uint64_t id = 2; id < 12; ++id) cutter.Add(kNow, Pair(id), 20, 0);
  EXPECT_THAT(cutter.Cut(),
              ElementsAre(Part(2, 0, 20), Part(3, 0, 20), Part(4, 0, 20), Part(1, 0, 20)));
  EXPECT_THAT(cutter.Cut(),
              ElementsAre(Part(5, 0, 20), Part(6, 0, 20), Part(7, 0, 20), Part(1, 20, 10)));
}

TEST(GroupCutterTest, SessionsTakeTurnsWhateverTheyHaveWaiting) {
  GroupCutter cutter(kSmallOptions);
  const uint64_t other = MakeTransferId(SessionId(7), 1).value();
  for (uint64_t id : {1, 2}) cutter.Add(kNow, Pair(id), 1000, 0);
  cutter.Add(kNow, Pair(other), 1000, 0);
  EXPECT_THAT(cutter.Cut(), ElementsAre(Part(1, 0, 60), Part(other, 0, 40)));
  EXPECT_THAT(cutter.Cut(), ElementsAre(Part(other, 40, 60), Part(1, 60, 40)));
}

TEST(GroupCutterTest, TheTwoDaemonsSessionsOfOneNumberAreTwo) {
  GroupCutter cutter(kSmallOptions);
  const PairName back{true, TransferId(1)};
  for (uint64_t id : {1, 2}) cutter.Add(kNow, Pair(id), 1000, 0);
  cutter.Add(kNow, back, 1000, 0);
  EXPECT_THAT(cutter.Cut(), ElementsAre(Part(1, 0, 60), Chunk{back, 0, 40}));
}

TEST(GroupCutterTest, WhatIsDirectHasAllTheRoomThereIs) {
  GroupCutter cutter(kSmallOptions);
  cutter.Add(kNow, Pair(1), 1000, 0, /*unstaged=*/true);
  EXPECT_THAT(cutter.Cut(500), ElementsAre(Part(1, 0, 500)));
  EXPECT_THAT(cutter.Cut(50), ElementsAre(Part(1, 500, 100)));  // never less than staging holds
  cutter.Add(kNow, Pair(2), 1000, 0);
  EXPECT_THAT(cutter.Cut(1000), ElementsAre(Part(1, 600, 400), Part(2, 0, 100)));
  EXPECT_THAT(cutter.Cut(1000), ElementsAre(Part(2, 100, 100)));
}

TEST(GroupCutterTest, AGroupWithSmallOnesIsShort) {
  GroupCutter cutter(kSmallOptions);
  cutter.Add(kNow, Pair(1), 1000, 0, /*unstaged=*/true);
  cutter.Add(kNow, Pair(2), 20, 0, /*unstaged=*/true);  // too small to be that
  EXPECT_THAT(cutter.Cut(1000), ElementsAre(Part(2, 0, 20), Part(1, 0, 80)));
}

TEST(GroupCutterTest, ADirectOneLeavesNothingThatIsTooSmallToGoAlone) {
  GroupCutter cutter(kSmallOptions);
  cutter.Add(kNow, Pair(1), 119, 0, /*unstaged=*/true);
  EXPECT_THAT(cutter.Cut(), ElementsAre(Part(1, 0, 119)));
  cutter.Add(kNow, Pair(2), 125, 0, /*unstaged=*/true);
  EXPECT_THAT(cutter.Cut(), ElementsAre(Part(2, 0, 100)));
  EXPECT_THAT(cutter.Cut(), ElementsAre(Part(2, 100, 25)));
}

TEST(GroupCutterTest, FiringsTakeTurnsWithAllOthers) {
  GroupCutter cutter(kSmallOptions);
  const PairName firing{false, TransferId(9), 1};
  EXPECT_FALSE(cutter.Full());
  cutter.Add(kNow, firing, 250, 0);
  EXPECT_TRUE(cutter.Full());  // it waits for no company
  EXPECT_THAT(cutter.Cut(1000), ElementsAre(Chunk{firing, 0, 100}));
  cutter.Add(kNow, Pair(1), 10, 0);
  cutter.Add(kNow, Pair(2), 200, 0);
  EXPECT_THAT(cutter.Cut(), ElementsAre(Part(1, 0, 10), Part(2, 0, 90)));
  EXPECT_THAT(cutter.Cut(), ElementsAre(Chunk{firing, 100, 100}));
  EXPECT_THAT(cutter.Cut(), ElementsAre(Part(2, 90, 100)));
  EXPECT_THAT(cutter.Cut(), ElementsAre(Chunk{firing, 200, 50}));
  EXPECT_THAT(cutter.Cut(), ElementsAre(Part(2, 190, 10)));
  cutter.Add(kNow, firing, 0, 0);
  EXPECT_THAT(cutter.Cut(), ElementsAre(Chunk{firing, 0, 0}));
  EXPECT_TRUE(cutter.empty());
}

TEST(GroupCutterTest, WholeFiringsShareAGroupAsFarAsStagingGoes) {
  GroupCutter cutter(kSmallOptions);
  const auto firing = [](uint64_t id) { return PairName{id % 2 == 0, TransferId(id), 1}; };
  cutter.Add(kNow, firing(1), 130, 0);
  for (uint64_t id : {2, 3}) cutter.Add(kNow, firing(id), 40, 0);
  cutter.Add(kNow, firing(4), 31, 0);
  cutter.Add(kNow, firing(5), 0, 0);
  const std::vector<Chunk> first = cutter.Cut(1000);
  EXPECT_THAT(first, ElementsAre(Chunk{firing(1), 0, 100}));
  std::vector<Chunk> left;
  while (!cutter.empty()) {
    uint64_t bytes = 0;
    for (const Chunk& chunk : cutter.Cut(1000)) {
      bytes += chunk.bytes;
      left.push_back(chunk);
    }
    EXPECT_LE(bytes, 100u);
  }
  EXPECT_THAT(left, testing::UnorderedElementsAre(Chunk{firing(1), 100, 30},
                                                  Chunk{firing(2), 0, 40}, Chunk{firing(3), 0, 40},
                                                  Chunk{firing(4), 0, 31}, Chunk{firing(5), 0, 0}));
  // No more than both ends take.
  GroupCutter many(GroupCutter::Options{});
  for (uint64_t id = 1; id <= kMaxGroupFirings + 1; ++id) many.Add(kNow, firing(id), 8, 0);
  EXPECT_THAT(many.Cut(), testing::SizeIs(kMaxGroupFirings));
  EXPECT_THAT(many.Cut(), testing::SizeIs(1));
}

TEST(GroupCutterTest, DirectFiringsShareAGroupAsFarAsAQuarterOfTheRoomGoes) {
  GroupCutter cutter(kSmallOptions);
  const auto firing = [](uint64_t id) { return PairName{false, TransferId(id), 1}; };
  const auto whole = [&](uint64_t id, uint64_t bytes) { return Chunk{firing(id), 0, bytes}; };
  for (uint64_t id : {1, 2, 3, 4}) cutter.Add(kNow, firing(id), 80, 0, /*unstaged=*/true);
  EXPECT_THAT(cutter.Cut(1000), ElementsAre(whole(1, 80), whole(2, 80), whole(3, 80)));
  // What may be staged joins as if none were direct, and then none does.
  cutter.Add(kNow, firing(5), 10, 0);
  cutter.Add(kNow, firing(6), 80, 0, /*unstaged=*/true);
  cutter.Add(kNow, firing(7), 80, 0, /*unstaged=*/true);
  cutter.Add(kNow, firing(8), 10, 0);
  EXPECT_THAT(cutter.Cut(1000), ElementsAre(whole(4, 80), whole(5, 10)));
  EXPECT_THAT(cutter.Cut(1000), ElementsAre(whole(6, 80), whole(7, 80)));
  EXPECT_THAT(cutter.Cut(1000), ElementsAre(whole(8, 10)));
  // Never less than staging holds.
  for (uint64_t id : {1, 2}) cutter.Add(kNow, firing(id), 40, 0, /*unstaged=*/true);
  EXPECT_THAT(cutter.Cut(200), ElementsAre(whole(1, 40), whole(2, 40)));
}

TEST(GroupCutterTest, ADirectFiringIsLongUnlessSmallOnesWait) {
  GroupCutter cutter(kSmallOptions);
  const PairName firing{false, TransferId(9), 1};
  cutter.Add(kNow, firing, 1000, 0, /*unstaged=*/true);
  EXPECT_THAT(cutter.Cut(500), ElementsAre(Chunk{firing, 0, 500}));
  cutter.Add(kNow, Pair(1), 10, 0);
  cutter.Cut();
  cutter.Add(kNow, Pair(2), 10, 0);
  EXPECT_THAT(cutter.Cut(500), ElementsAre(Chunk{firing, 500, 100}));
  EXPECT_TRUE(cutter.Remove(firing));
  EXPECT_THAT(cutter.Cut(500), ElementsAre(Part(2, 0, 10)));
}

TEST(GroupCutterTest, EveryByteIsCutOnceUnlessItIsRemoved) {
  GroupCutter cutter(kSmallOptions);
  for (uint64_t id = 0; id < 7; ++id) cutter.Add(kNow, Pair(id), id * 23, id % 2);
  EXPECT_THAT(cutter.Cut().size(), 4u);
  EXPECT_TRUE(cutter.Remove(Pair(6)));
  EXPECT_FALSE(cutter.Remove(Pair(6)));
  GroupCutter whole(kSmallOptions);
  std::map<uint64_t, uint64_t> next;
  for (uint64_t id = 0; id < 7; ++id) whole.Add(kNow, Pair(id), id * 23, id % 2);
  while (!whole.empty()) {
    for (const Chunk& chunk : whole.Cut()) {
      uint64_t& offset = next[chunk.pair.transfer.value()];
      EXPECT_EQ(chunk.offset, offset);
      offset += chunk.bytes;
    }
  }
  for (uint64_t id = 0; id < 7; ++id) EXPECT_EQ(next[id], id * 23);
}

TEST(GroupCutterTest, TheOldestSaysWhenAGroupIsDue) {
  GroupCutter cutter(kSmallOptions);
  EXPECT_EQ(cutter.DueAt(), absl::InfiniteFuture());
  cutter.Add(kNow, Pair(1), 1000, 0);
  cutter.Add(kNow + absl::Milliseconds(1), Pair(2), 1, 0);
  EXPECT_EQ(cutter.DueAt(), kNow + absl::Milliseconds(2));
  cutter.Cut();
  EXPECT_EQ(cutter.DueAt(), kNow + absl::Milliseconds(2));  // what is left is as old
  cutter.Clear();
  EXPECT_EQ(cutter.DueAt(), absl::InfiniteFuture());
  EXPECT_TRUE(cutter.empty());
}

}  // namespace
}  // namespace ferry
