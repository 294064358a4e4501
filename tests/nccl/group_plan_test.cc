// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/group_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits.h>

#include <random>

#include "transfer/nccl/nccl_api.h"

namespace ferry {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(GroupPlanTest, SmallChunksOfADirectionAreOneOperation) {
  const auto plan = PlanGroup(
      {{true, 100}, {false, 7}, {true, 64 << 10}, {true, 0}, {false, kPackBelow}, {true, 1}});
  ASSERT_THAT(plan, SizeIs(3));
  EXPECT_TRUE(plan[0].send);
  ASSERT_THAT(plan[0].parts, SizeIs(3));
  EXPECT_EQ(plan[0].parts[1].chunk, 2u);
  EXPECT_EQ(plan[0].parts[1].offset, 112u);  // 100, and on to a multiple of 16
  EXPECT_EQ(plan[0].bytes, 112u + (64 << 10) + 1);
  EXPECT_FALSE(plan[1].send);
  EXPECT_EQ(plan[1].bytes, 7u);
  EXPECT_EQ(plan[2].bytes, kPackBelow);
  EXPECT_THAT(plan[2].parts, SizeIs(1));
}

TEST(GroupPlanTest, NothingIsSentForNothing) {
  EXPECT_THAT(PlanGroup({}), IsEmpty());
  EXPECT_THAT(PlanGroup({{true, 0}, {false, 0}}), IsEmpty());
}

TEST(GroupPlanTest, BothEndsPlanTheSame) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 100; ++round) {
    std::vector<PlannedChunk> here, there;
    for (uint64_t i = random() % 200; i > 0; --i) {
      const bool send = random() % 2 == 0;
      const uint64_t bytes = random() % (random() % 4 == 0 ? 4 * kPackBelow : 5000);
      here.push_back({send, bytes});
      there.push_back({!send, bytes});
    }
    const auto ours = PlanGroup(here), theirs = PlanGroup(there);
    uint64_t bytes = 0, expected = 0;
    for (const PlannedChunk& chunk : here) expected += chunk.bytes;
    for (const bool send : {false, true}) {
      size_t at = 0;
      for (const PlannedOperation& operation : ours) {
        if (operation.send != send) continue;
        while (theirs[at].send == send) ++at;
        ASSERT_LT(at, theirs.size());
        EXPECT_EQ(theirs[at++].bytes, operation.bytes);
        EXPECT_TRUE(operation.parts.size() == 1 || operation.bytes <= kMostPacked);
        for (size_t i = 0; i < operation.parts.size(); ++i) {
          const auto& part = operation.parts[i];
          const uint64_t end = part.offset + here[part.chunk].bytes;
          EXPECT_EQ(part.offset % kPackAlignment, 0u);
          EXPECT_LE(end, i + 1 < operation.parts.size() ? operation.parts[i + 1].offset
                                                        : operation.bytes);
          bytes += here[part.chunk].bytes;
        }
      }
    }
    EXPECT_EQ(bytes, expected);
  }
}

TEST(MaxCtasTest, BothRanksTakeTheSmallerNumberThatIsSaid) {
  EXPECT_EQ(AgreedCtas(16, 8), 8);
  EXPECT_EQ(AgreedCtas(8, 16), 8);
  EXPECT_EQ(AgreedCtas(0, 16), 16);
  EXPECT_EQ(AgreedCtas(16, 0), 16);
  EXPECT_EQ(AgreedCtas(0, 0), 0);
}

TEST(MaxCtasTest, OnlyTheNewestGpusAreCappedAndOnlyIfNobodySaidANumber) {
  EXPECT_EQ(MaxCtas(16, 22809, 9, {}), 16);
  EXPECT_EQ(MaxCtas(0, 22809, 9, {}), 0);
  EXPECT_EQ(MaxCtas(0, 22809, 10, {}), 32);
  EXPECT_EQ(MaxCtas(0, 22703, 10, {}), 0);
  EXPECT_EQ(MaxCtas(0, 22809, 12, {}), 0);
  EXPECT_EQ(MaxCtas(64, 22809, 10, {}), 64);
  EXPECT_EQ(MaxCtas(0, 22809, 10, {"NCCL_DEBUG=INFO", "NCCL_MAX_CTAS=48"}), 0);
  EXPECT_EQ(MaxCtas(0, 22809, 10, {"NCCL_MAX_NCHANNELS=48"}), 0);
  EXPECT_EQ(BlockingConfig(32).maxCTAs, 32);
  EXPECT_EQ(BlockingConfig(0).maxCTAs, INT_MIN);  // NCCL's own choice
}

}  // namespace
}  // namespace ferry
