// SPDX-License-Identifier: Apache-2.0
// Trigger: when a firing may begin, and when it is over, by the words of one end and of both.
#include "transfer/trigger.h"

#include <gtest/gtest.h>

#include <memory>

#include "device/timeline.h"
#include "tests/contract/prepared_client.h"

namespace ferry {
namespace {

class TriggerTest : public ::testing::Test {
 protected:
  ~TriggerTest() override {
    lane_.RunAndWait([this] { trigger_.reset(); });
  }
  // A trigger whose own batch, and the other end's if there is one, has `transfers` transfers.
  void Make(uint32_t transfers, bool source, const uint64_t* other = nullptr) {
    Trigger::Words words{&receiver_.Prepare(transfers),
                         source ? &sender_.Prepare(transfers) : nullptr, other, std::nullopt};
    lane_.RunAndWait([&] { trigger_ = std::make_unique<Trigger>(lane_, words); });
  }
  void MakeArmed(bool source, const uint64_t* other = nullptr) {
    Make(1, source, other);
    trigger_->Arm();
  }

  PreparedClient sender_, receiver_;  // first: they outlive the trigger
  Lane lane_{"lane", absl::ZeroDuration()};
  std::unique_ptr<Trigger> trigger_;
};

TEST_F(TriggerTest, AFiringMayBeginWhenTheWordsOfBothBatchesAllowIt) {
  MakeArmed(/*source=*/true);
  for (uint64_t n = 1; n <= 3; ++n) {
    EXPECT_EQ(trigger_->next(), n);
    EXPECT_FALSE(trigger_->Ready());
    (n % 2 == 0 ? sender_ : receiver_).Fire(0, n);
    EXPECT_FALSE(trigger_->Ready()) << "only one end wants firing " << n;
    (n % 2 == 0 ? receiver_ : sender_).Fire(0, n);
    EXPECT_TRUE(trigger_->Ready());
    trigger_->Begin();
    EXPECT_TRUE(trigger_->begun());
    EXPECT_FALSE(trigger_->Ready()) << "it has begun";
    EXPECT_TRUE(trigger_->Over(n, 1, 1));
    EXPECT_EQ(sender_.Over(0), n);
    EXPECT_EQ(receiver_.Over(0), n);
  }
}

TEST_F(TriggerTest, TheOtherEndsWordMayBeInAPage) {
  uint64_t fired = 0;
  MakeArmed(/*source=*/false, &fired);
  receiver_.Fire(0, 1);
  EXPECT_FALSE(trigger_->Ready());
  __atomic_store_n(&fired, 1, __ATOMIC_SEQ_CST);
  EXPECT_TRUE(trigger_->Ready());
  trigger_->Begin();
  EXPECT_TRUE(trigger_->Over(1, 1, 1));
  receiver_.Fire(0, 2);
  EXPECT_FALSE(trigger_->Ready()) << "the other end's word is of the firing before";
}

TEST_F(TriggerTest, WithoutAWordOfTheOtherEndOursAloneDecides) {
  MakeArmed(/*source=*/false);
  EXPECT_FALSE(trigger_->Ready());
  receiver_.Fire(0, 1);
  EXPECT_TRUE(trigger_->Ready());
}

TEST_F(TriggerTest, NothingMayBeginBeforeAllOfABatchAreArmedOrAfterOneHasLeft) {
  Make(2, /*source=*/true);
  trigger_->Arm();
  sender_.Fire(0, 1);
  receiver_.Fire(0, 1);
  EXPECT_FALSE(trigger_->Ready());
  trigger_->Arm();
  EXPECT_TRUE(trigger_->Ready());
  trigger_->Disarm();
  EXPECT_FALSE(trigger_->Ready());
}

TEST_F(TriggerTest, AFiringIsOverWhenItIsForAllTransfers) {
  Make(3, /*source=*/true);
  for (int i = 0; i < 3; ++i) trigger_->Arm();
  sender_.Fire(0, 2);
  receiver_.Fire(0, 2);
  trigger_->Begin();
  EXPECT_FALSE(trigger_->Over(1, 1, 3));
  EXPECT_FALSE(trigger_->Over(1, 1, 3));
  EXPECT_EQ(trigger_->next(), 1u);
  EXPECT_TRUE(trigger_->begun());
  EXPECT_EQ(receiver_.Over(0), 0u);
  EXPECT_TRUE(trigger_->Over(1, 1, 3));
  EXPECT_EQ(trigger_->next(), 2u);
  EXPECT_EQ(receiver_.Over(0), 1u);
  EXPECT_TRUE(trigger_->Ready()) << "both have stored ahead";
}

TEST_F(TriggerTest, WhatWasTakenBackBeginsAnew) {
  MakeArmed(/*source=*/false);
  receiver_.Fire(0, 1);
  EXPECT_FALSE(trigger_->TakeBack()) << "it has not begun";
  trigger_->Begin();
  EXPECT_TRUE(trigger_->TakeBack());
  EXPECT_EQ(trigger_->next(), 1u);
  EXPECT_TRUE(trigger_->Ready());
  EXPECT_EQ(receiver_.Over(0), 0u);
}

TEST_F(TriggerTest, WhatWasStoppedBeginsNoMore) {
  MakeArmed(/*source=*/false);
  receiver_.Fire(0, 1);
  trigger_->Begin();
  trigger_->Stop();
  EXPECT_FALSE(trigger_->begun());
  EXPECT_FALSE(trigger_->Ready());
  EXPECT_EQ(receiver_.Over(0), 0u);
}

}  // namespace
}  // namespace ferry
