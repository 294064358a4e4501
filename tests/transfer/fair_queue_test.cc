// SPDX-License-Identifier: Apache-2.0
#include "transfer/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>

namespace ferry {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct Op : FairQueue::Item {
  Op(uint64_t id, uint32_t session, uint64_t bytes, int32_t priority = 0)
      : Item(session, priority, bytes), id(id), session(session) {}
  uint64_t id;
  uint32_t session;
};

class FairQueueTest : public testing::Test {
 protected:
  Op& Add(uint32_t session, uint64_t bytes, int32_t priority = 0) {
    ops_.emplace_back(ops_.size() + 1, session, bytes, priority);
    queue_.Add(ops_.back());
    return ops_.back();
  }
  // Serves the next piece; whose.
  Op& Serve(uint64_t most = kMiB) {
    Op& op = static_cast<Op&>(*queue_.Next());
    const uint64_t bytes = std::min(op.left(), most);
    served_[op.session] += bytes;
    queue_.Serve(bytes);
    return op;
  }
  // The ids of all, in the order in which they end.
  std::vector<uint64_t> Drain(uint64_t most = kMiB) {
    std::vector<uint64_t> order;
    while (!queue_.empty()) {
      Op& op = Serve(most);
      if (!op.waiting()) order.push_back(op.id);
    }
    return order;
  }

  FairQueue queue_;
  std::deque<Op> ops_;
  std::map<uint32_t, uint64_t> served_;
};

TEST_F(FairQueueTest, OneSessionIsServedInOrder) {
  EXPECT_EQ(queue_.Next(), nullptr);
  Add(1, 10);
  Add(1, 0);
  Add(1, kMiB);
  EXPECT_EQ(queue_.size(), 3u);
  EXPECT_THAT(Drain(), ElementsAre(1, 2, 3));
  EXPECT_EQ(queue_.Next(), nullptr);
}

TEST_F(FairQueueTest, AnEstimateIsCorrectedByWhatItTurnsOutToCost) {
  for (int i = 0; i < 100; ++i) {
    Add(1, kMiB);
    Add(2, kMiB);
  }
  std::map<uint32_t, uint64_t> cost;
  for (int i = 0; i < 80; ++i) {
    Op& op = Serve();
    const uint64_t paid = op.session == 1 ? 9 * kMiB : kMiB / 2;
    cost[op.session] += paid;
    queue_.Charge(op, kMiB, paid);
    EXPECT_LE(cost[1], cost[2] + 10 * kMiB);
    EXPECT_LE(cost[2], cost[1] + 10 * kMiB);
  }
}

TEST_F(FairQueueTest, WhoHasNothingWaitingIsChargedToo) {
  for (int i = 0; i < 10; ++i) Add(2, kMiB);
  Op& dear = Add(1, kMiB);
  while (&Serve() != &dear) continue;
  queue_.Charge(dear, kMiB, 5 * kMiB);
  const Op& next = Add(1, kMiB);
  int before = 0;
  while (&Serve() != &next) ++before;
  EXPECT_GE(before, 4) << "as often as it was served before its time";
}

TEST_F(FairQueueTest, NobodyIsChargedWhileNothingWaits) {
  Op& only = Add(1, kMiB);
  Serve();
  queue_.Charge(only, kMiB, 1000 * kMiB);
  const Op& one = Add(1, kMiB);
  Add(2, kMiB);
  EXPECT_EQ(&Serve(), &one);
}

TEST_F(FairQueueTest, WithinASessionSmallComesBeforeLarge) {
  Add(1, 8 * kMiB);
  Serve();
  Add(1, 100);
  Add(1, kMiB);
  Add(1, 2 * kMiB);
  EXPECT_THAT(Drain(), ElementsAre(2, 3, 1, 4));
}

TEST_F(FairQueueTest, ATransferOfAnotherSessionDoesNotWaitBehindALargeOne) {
  Add(1, uint64_t{8} << 30);
  for (int i = 0; i < 100; ++i) Serve();
  const Op& small = Add(2, 65536);
  EXPECT_EQ(&Serve(), &small);  // it comes in at the clock of who was served before
}

// Whatever the mix of sizes, and whatever came and went before.
TEST_F(FairQueueTest, WhoWaitsAllTheTimeIsServedAlikeWithinOnePieceEach) {
  std::mt19937 random(7);
  for (uint32_t session = 1; session <= 3; ++session) {
    uint64_t total = 0;
    while (total < 600 * kMiB) {
      const uint64_t bytes = session == 1   ? 100 * kMiB
                             : session == 2 ? FairQueue::kLeastCost + random() % 65536
                                            : 1 + (random() % 3) * kMiB + random() % kMiB;
      Add(session, std::max(bytes, FairQueue::kLeastCost));
      total += bytes;
    }
  }
  Add(4, 10 * kMiB);  // comes and goes
  for (int i = 0; i < 20'000 && served_[1] < 500 * kMiB; ++i) {
    Serve();
    const auto [least, most] = std::minmax({served_[1], served_[2], served_[3]});
    ASSERT_LE(most - least, 2 * kMiB) << i;
  }
  EXPECT_GE(served_[2], 498 * kMiB);
  EXPECT_EQ(served_[4], 10 * kMiB);
}

TEST_F(FairQueueTest, WhoWasAwayMakesUpForNothingAndComesBackToNoPenalty) {
  Add(1, 1000 * kMiB);
  Add(2, kMiB);
  for (int i = 0; i < 500; ++i) Serve();
  Add(2, 1000 * kMiB);
  served_.clear();
  for (int i = 0; i < 100; ++i) Serve();
  EXPECT_NEAR(static_cast<double>(served_[1]), static_cast<double>(served_[2]), 2.0 * kMiB);
}

// One that posts the next op only when the last one is over gets no more than its share by that.
TEST_F(FairQueueTest, LeavingAndComingBackGainsNothing) {
  Add(1, 1000 * kMiB);
  Add(2, kMiB);
  for (int i = 0; i < 400; ++i) {
    if (Op& op = Serve(); op.session == 2 && !op.waiting()) Add(2, kMiB);
  }
  EXPECT_NEAR(static_cast<double>(served_[1]), static_cast<double>(served_[2]), 2.0 * kMiB);
}

TEST_F(FairQueueTest, TinyOpsPayForTheirCalls) {
  for (int i = 0; i < 3000; ++i) Add(1, 8);
  Add(2, 100 * kMiB);
  int tiny = 0;
  while (served_[2] < 4 * kMiB) tiny += Serve().session == 1 ? 1 : 0;
  EXPECT_LE(tiny, static_cast<int>(5 * kMiB / FairQueue::kLeastCost));
}

TEST_F(FairQueueTest, PriorityOrdersWithinASession) {
  Add(1, 100, -1);
  Add(1, 100);
  Add(1, 8 * kMiB, 100);
  Add(1, 100, 7);
  EXPECT_THAT(Drain(), ElementsAre(3, 4, 2, 1));
}

TEST_F(FairQueueTest, PriorityIsAWeightAgainstOtherSessions) {
  Add(1, 1000 * kMiB, 50);
  Add(2, 1000 * kMiB, 0);
  Add(3, 1000 * kMiB, -50);
  for (int i = 0; i < 700; ++i) Serve();
  EXPECT_NEAR(static_cast<double>(served_[1]), 400.0 * kMiB, 4.0 * kMiB);
  EXPECT_NEAR(static_cast<double>(served_[2]), 200.0 * kMiB, 4.0 * kMiB);
  EXPECT_NEAR(static_cast<double>(served_[3]), 100.0 * kMiB, 4.0 * kMiB);
}

TEST_F(FairQueueTest, NobodyStarvesWhateverOthersClaim) {
  Add(1, 1000 * kMiB, -100);
  for (uint32_t session = 2; session <= 5; ++session) Add(session, 1000 * kMiB, 100);
  for (int i = 0; i < 650; ++i) Serve();
  EXPECT_GE(served_[1], 9 * kMiB);  // one part of 65
}

TEST_F(FairQueueTest, WhatIsRemovedIsNotServed) {
  Op& first = Add(1, 4 * kMiB);
  Op& second = Add(1, 4 * kMiB);
  Op& other = Add(2, 4 * kMiB);
  EXPECT_EQ(&Serve(), &first);
  queue_.Remove(first);
  EXPECT_FALSE(first.waiting());
  queue_.Remove(first);
  EXPECT_EQ(&Serve(), &other);
  EXPECT_EQ(&Serve(), &second);
  queue_.Remove(second);
  EXPECT_EQ(queue_.size(), 1u);
  EXPECT_EQ(&Serve(), &other);
  queue_.Remove(other);
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.Next(), nullptr);
  Add(2, 5);
  queue_.Clear();
  EXPECT_TRUE(queue_.empty());
  EXPECT_FALSE(ops_.back().waiting());
}

TEST_F(FairQueueTest, ManyComeAndGoInAnyOrderAndNoneIsLost) {
  std::mt19937 random(11);
  size_t waiting = 0;
  for (int step = 0; step < 200'000; ++step) {
    if (random() % 3 != 0) {
      Add(random() % 1000, random() % (3 * kMiB), static_cast<int32_t>(random() % 201) - 100);
      ++waiting;
    } else if (random() % 8 == 0) {
      Op& op = ops_[random() % ops_.size()];
      waiting -= op.waiting() ? 1 : 0;
      queue_.Remove(op);
    } else if (!queue_.empty()) {
      waiting -= Serve().waiting() ? 0 : 1;
    }
    ASSERT_EQ(queue_.size(), waiting);
  }
  Drain(uint64_t{1} << 40);
  for (const Op& op : ops_) ASSERT_FALSE(op.waiting());
}

}  // namespace
}  // namespace ferry
