// SPDX-License-Identifier: Apache-2.0
#include "device/prepared_batch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "device/timeline.h"

namespace ferry {
namespace {

class PreparedBatchTest : public ::testing::Test {
 protected:
  PreparedBatchTest() : pages_(*TimelinePages::Create()) {
    raw_ = static_cast<ferry_timeline_pages*>(const_cast<void*>(pages_->begin()));
  }
  void Fire(uint32_t number, uint64_t n) { raw_->prepared_defined[number].value = n; }
  bool Rung() {
    eventfd_t count = 0;
    return eventfd_read(pages_->own_bell(), &count) == 0;
  }
  std::unique_ptr<TimelinePages> pages_;
  ferry_timeline_pages* raw_ = nullptr;
};

TEST_F(PreparedBatchTest, WantsAFiringWhenArmedAskedForAndNext) {
  const auto batch = pages_->Prepare(5, 2);
  Fire(5, 1);
  EXPECT_FALSE(batch->Wants(1));
  batch->Arm();
  EXPECT_FALSE(batch->Wants(1));
  batch->Arm();
  EXPECT_TRUE(batch->Wants(1));
  EXPECT_FALSE(batch->Wants(2));
  batch->Disarm();
  EXPECT_FALSE(batch->Wants(1));
}

TEST_F(PreparedBatchTest, IsFiringFromTheStoreUntilItIsOver) {
  const auto batch = pages_->Prepare(5, 1);
  EXPECT_FALSE(batch->Firing());
  Fire(5, 1);
  EXPECT_TRUE(batch->Firing()) << "though it cannot begin yet";
  batch->Over(1, 1);
  EXPECT_FALSE(batch->Firing());
}

TEST_F(PreparedBatchTest, WhatIsJoinedIsFiredByTheDaemonAndRingsIt) {
  const auto batch = pages_->Prepare(5, 1);
  EXPECT_TRUE(batch->IsOver(0));
  EXPECT_FALSE(batch->IsOver(1));
  batch->Define(2);
  EXPECT_TRUE(Rung());
  EXPECT_EQ(raw_->prepared_defined[5].value, 2u);
  batch->Define(1);
  EXPECT_EQ(raw_->prepared_defined[5].value, 2u) << "never back";
  batch->Over(1, 1);
  EXPECT_TRUE(batch->IsOver(1));
  EXPECT_TRUE(Rung()) << "of what was stored ahead";
  batch->Over(2, 1);
  EXPECT_FALSE(Rung());
  batch->SetJoined(true);
  batch->Over(3, 1);
  EXPECT_TRUE(Rung());
  batch->End();
  EXPECT_FALSE(batch->IsOver(1)) << "it has ended";
}

TEST_F(PreparedBatchTest, TheLastTransferAdvancesTheWord) {
  const auto batch = pages_->Prepare(255, 3);
  batch->Over(1, 2);
  EXPECT_EQ(raw_->prepared_over[255].value, 0u);
  batch->Over(1, 1);
  EXPECT_EQ(raw_->prepared_over[255].value, 1u);
  EXPECT_EQ(raw_->signals.events, 1u);
  batch->Over(2, 3);
  EXPECT_EQ(raw_->prepared_over[255].value, 2u);
  EXPECT_EQ(batch->firings(), 2u);
}

TEST_F(PreparedBatchTest, ItsEndReachesEveryValueAndStays) {
  const auto batch = pages_->Prepare(0, 1);
  batch->Over(1, 1);
  batch->End();
  EXPECT_EQ(raw_->prepared_over[0].value, FERRY_PREPARED_ENDED);
  EXPECT_EQ(raw_->prepared_over[0].first_failed, 2u);
  EXPECT_EQ(raw_->prepared_over[0].failures, 1u);
  EXPECT_EQ(batch->firings(), 1u);
  batch->Over(2, 1);  // of a lane that was late
  EXPECT_EQ(raw_->prepared_over[0].value, FERRY_PREPARED_ENDED);
  EXPECT_EQ(batch->firings(), 1u);
  EXPECT_FALSE(batch->Wants(2));
}

TEST_F(PreparedBatchTest, ANumberIsGivenOutWithClearWords) {
  auto batch = pages_->Prepare(9, 1);
  Fire(9, 17);
  batch->End();
  batch = pages_->Prepare(9, 1);
  EXPECT_EQ(raw_->prepared_over[9].value, 0u);
  EXPECT_EQ(raw_->prepared_over[9].first_failed, 0u);
  EXPECT_EQ(raw_->prepared_over[9].failures, 0u);
  EXPECT_EQ(raw_->prepared_defined[9].value, 0u);
}

TEST_F(PreparedBatchTest, AResumedSessionsWordsBeginWhereItSays) {
  constexpr uint64_t kFrom = (uint64_t{1} << 62) - 1;
  auto resumed =
      TimelinePages::Resume(UniqueFd(fcntl(pages_->memfd(), F_DUPFD_CLOEXEC, 0)), {}, kFrom, false);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  raw_->prepared_over[9] = {FERRY_PREPARED_ENDED, 3, 1, 0, {}};
  auto batch = (*resumed)->Prepare(9, 1);
  EXPECT_EQ(raw_->prepared_over[9].value, kFrom);
  EXPECT_EQ(raw_->prepared_over[9].first_failed, 0u);
  EXPECT_EQ(raw_->prepared_defined[9].value, kFrom);
  batch->Arm();
  EXPECT_FALSE(batch->Firing());
  Fire(9, 1);  // of another life
  EXPECT_FALSE(batch->Firing());
  EXPECT_FALSE(batch->Wants(1));
  Fire(9, kFrom + 1);
  EXPECT_TRUE(batch->Firing());
  EXPECT_TRUE(batch->Wants(1));
  EXPECT_FALSE(batch->Wants(2));
  EXPECT_EQ(batch->ValueOf(1), kFrom + 1);
  batch->Over(1, 1);
  EXPECT_EQ(raw_->prepared_over[9].value, kFrom + 1);
  EXPECT_TRUE(batch->IsOver(1));
  EXPECT_FALSE(batch->IsOver(2));
  EXPECT_EQ(batch->firings(), 1u);
  batch->Define(2);
  EXPECT_EQ(raw_->prepared_defined[9].value, kFrom + 2);
  batch->End();
  EXPECT_EQ(raw_->prepared_over[9].value, FERRY_PREPARED_ENDED);
  EXPECT_EQ(raw_->prepared_over[9].first_failed, kFrom + 2);
  EXPECT_EQ(batch->firings(), 1u);
}

TEST_F(PreparedBatchTest, RingsWhenNobodyElseWill) {
  const auto batch = pages_->Prepare(1, 2);
  batch->Arm();
  EXPECT_FALSE(Rung());
  batch->Arm();
  EXPECT_TRUE(Rung()) << "lanes that looked before do not know";
  Fire(1, 1);
  batch->Over(1, 2);
  EXPECT_FALSE(Rung()) << "its client will";
  Fire(1, 3);
  batch->Over(2, 2);
  EXPECT_TRUE(Rung()) << "its client has stored ahead";
}

TEST_F(PreparedBatchTest, ScribbledWordsMoveNothing) {
  const auto batch = pages_->Prepare(2, 1);
  batch->Arm();
  raw_->prepared_over[2] = {77, 88, 99, 1, {}};
  Fire(2, ~uint64_t{0});
  EXPECT_TRUE(batch->Wants(1));
  EXPECT_FALSE(batch->Wants(78));
  batch->Over(1, 1);
  EXPECT_EQ(batch->firings(), 1u);
}

}  // namespace
}  // namespace ferry
