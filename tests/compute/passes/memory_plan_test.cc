// SPDX-License-Identifier: Apache-2.0
#include "compute/passes/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <vector>

namespace ferry::compute {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

Allocation Of(uint64_t bytes, uint32_t first, uint32_t last,
              std::optional<size_t> in_place_of = std::nullopt) {
  return {bytes, first, last, 16, in_place_of};
}

TEST(MemoryPlanTest, WhatIsOverMakesRoom) {
  const std::vector<Allocation> allocations = {Of(32, 0, 1), Of(64, 1, 2), Of(32, 2, 3)};
  const MemoryPlan plan = PlanMemory(allocations);
  EXPECT_THAT(plan.offsets, ElementsAre(64, 0, 64));
  EXPECT_EQ(plan.bytes, 96u);
  EXPECT_EQ(plan.peak_bytes, 96u);
  EXPECT_EQ(plan.peak_step, 1u);
  EXPECT_THAT(plan.holders, ElementsAre(1, 0));
}

// At step 1 there are gaps from 0 to 64 and from 104 to 144.
TEST(MemoryPlanTest, TheSmallestGapThatFitsIsTaken) {
  const std::vector<Allocation> allocations = {Of(64, 0, 0), Of(40, 0, 3), Of(32, 0, 0),
                                               Of(31, 0, 3), Of(30, 1, 1)};
  const MemoryPlan plan = PlanMemory(allocations);
  EXPECT_THAT(plan.offsets, ElementsAre(0, 64, 112, 144, 112));
  EXPECT_EQ(plan.bytes, 175u);
  EXPECT_EQ(plan.peak_bytes, 167u);
}

TEST(MemoryPlanTest, InPlaceOfOnlyWhatIsOverAndOfTheSameSize) {
  const auto shares = [](const Allocation& before, const Allocation& after) {
    const MemoryPlan plan = PlanMemory(std::vector<Allocation>{before, after});
    return plan.bytes == before.bytes && plan.offsets[0] == plan.offsets[1];
  };
  EXPECT_TRUE(shares(Of(64, 0, 1), Of(64, 1, 2, 0)));
  EXPECT_FALSE(shares(Of(64, 0, 1), Of(64, 1, 2)));
  EXPECT_FALSE(shares(Of(64, 0, 1), Of(48, 1, 2, 0)));
  EXPECT_FALSE(shares(Of(64, 0, 2), Of(64, 1, 2, 0)));
  // Only one has it; a third has the place of that one.
  const std::vector<Allocation> allocations = {Of(64, 0, 1), Of(64, 1, 2, 0), Of(64, 1, 2, 0),
                                               Of(64, 2, 3, 1)};
  const MemoryPlan plan = PlanMemory(allocations);
  EXPECT_THAT(plan.offsets, ElementsAre(0, 0, 64, 0));
  EXPECT_EQ(plan.bytes, 128u);
  EXPECT_EQ(plan.peak_bytes, 128u);
  EXPECT_THAT(plan.holders, ElementsAre(1, 2));
}

TEST(MemoryPlanTest, NothingTakesNothing) {
  EXPECT_EQ(PlanMemory({}).bytes, 0u);
  const MemoryPlan plan = PlanMemory(std::vector<Allocation>{Of(0, 0, 9), Of(16, 3, 4, 0)});
  EXPECT_THAT(plan.offsets, ElementsAre(0, 0));
  EXPECT_EQ(plan.bytes, 16u);
  EXPECT_THAT(plan.holders, ElementsAre(1));
}

TEST(MemoryPlanTest, TooManyBytesAreAllOnes) {
  const MemoryPlan plan =
      PlanMemory(std::vector<Allocation>{Of(kMost - 4, 0, 1), Of(64, 0, 1), Of(kMost / 2, 1, 1)});
  EXPECT_EQ(plan.bytes, kMost);
  EXPECT_EQ(plan.peak_bytes, kMost);
  EXPECT_EQ(plan.peak_step, 1u);
}

TEST(MemoryPlanTest, TheLargestFiveArePartOfThePeak) {
  std::vector<Allocation> allocations;
  for (uint64_t i = 0; i < 9; ++i) allocations.push_back(Of(16 * (i + 1), 2, 3));
  allocations.push_back(Of(1024, 0, 1));
  EXPECT_THAT(PlanMemory(allocations).holders, ElementsAre(9));
  allocations.push_back(Of(512, 3, 4));
  EXPECT_THAT(PlanMemory(allocations).holders, ElementsAre(10, 8, 7, 6, 5));
}

// On any allocations: nobody shares but in place, nothing is lost, and little is wasted.
TEST(MemoryPlanTest, RandomAllocationsNeverMeet) {
  std::mt19937_64 random(7);
  const auto below = [&](uint64_t bound) { return random() % bound; };
  uint64_t bytes = 0;
  uint64_t peaks = 0;
  size_t in_place = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<Allocation> allocations;
    const auto steps = static_cast<uint32_t>(1 + below(40));
    for (size_t count = below(60); count > 0; --count) {
      Allocation one;
      one.bytes = below(3) == 0 ? 64 << below(8) : below(5000);
      one.first = static_cast<uint32_t>(below(steps));
      one.last = one.first + static_cast<uint32_t>(below(10));
      one.alignment = uint64_t{1} << below(11);
      if (!allocations.empty() && below(2) == 0) {
        const size_t other = below(allocations.size());
        one.in_place_of = other;
        if (below(2) == 0) {
          one.bytes = allocations[other].bytes;
          one.last += allocations[other].last - one.first;
          one.first = allocations[other].last;
          one.last = std::max(one.last, one.first);
        }
      }
      allocations.push_back(one);
    }
    const MemoryPlan plan = PlanMemory(allocations);
    uint64_t end = 0;
    uint64_t most = 0;
    for (size_t i = 0; i < allocations.size(); ++i) {
      const Allocation& a = allocations[i];
      EXPECT_EQ(plan.offsets[i] % a.alignment, 0u);
      end = std::max(end, plan.offsets[i] + a.bytes);
      uint64_t there = 0;  // with `a`, at its first step
      for (size_t j = 0; j < allocations.size(); ++j) {
        const Allocation& b = allocations[j];
        if (b.first <= a.first && a.first <= b.last) there += b.bytes;
        if (i == j || a.bytes == 0 || b.bytes == 0) continue;
        const bool together = a.first <= b.last && b.first <= a.last;
        const bool overlap = plan.offsets[i] < plan.offsets[j] + b.bytes &&
                             plan.offsets[j] < plan.offsets[i] + a.bytes;
        if (!together || !overlap) continue;
        const bool after = a.in_place_of == j && b.last == a.first;
        const bool before = b.in_place_of == i && a.last == b.first;
        EXPECT_TRUE(after || before) << i << " and " << j << " in round " << round;
        EXPECT_EQ(plan.offsets[i], plan.offsets[j]);
        in_place += after ? 1 : 0;
      }
      most = std::max(most, there);
    }
    EXPECT_EQ(plan.bytes, end);
    EXPECT_GE(plan.bytes, plan.peak_bytes);
    EXPECT_LE(plan.peak_bytes, most);
    bytes += plan.bytes;
    peaks += plan.peak_bytes;
  }
  EXPECT_GT(in_place, 300u);
  EXPECT_LT(bytes, peaks * 5 / 4);
}

}  // namespace
}  // namespace ferry::compute
