// SPDX-License-Identifier: Apache-2.0
// UcxStrays: messages that nobody waits for are dropped when they come, and no others.
#include "transfer/ucx/ucx_strays.h"

#include <gtest/gtest.h>

#include "tests/ucx/fake_worker.h"

namespace ferry {
namespace {

class UcxStraysTest : public ::testing::Test {
 protected:
  bool Drop(size_t most = 100) { return strays_.Drop(nullptr, most); }

  FakeUcxWorker worker_;
  UcxStrays strays_{worker_.api()};
};

TEST_F(UcxStraysTest, AsManyMessagesAreDroppedAsMayStillCome) {
  strays_.Add(7, 3);
  EXPECT_FALSE(Drop());
  worker_.Come(7, 2);
  worker_.Come(8, 1);
  EXPECT_TRUE(Drop());
  EXPECT_EQ(worker_.dropped(), 2);
  EXPECT_EQ(worker_.freed(), 2);
  EXPECT_EQ(strays_.size(), 1u) << "one may still come";
  worker_.Come(7, 2);
  EXPECT_TRUE(Drop());
  EXPECT_EQ(worker_.dropped(), 3);
  EXPECT_EQ(strays_.size(), 0u);
  EXPECT_FALSE(worker_.empty()) << "the rest is for others";
  EXPECT_FALSE(Drop());
}

TEST_F(UcxStraysTest, NoMessagesAreNothingToWaitFor) {
  strays_.Add(7, 0);
  EXPECT_EQ(strays_.size(), 0u);
}

TEST_F(UcxStraysTest, EachHasItsTurn) {
  for (uint64_t tag : {1, 2, 3}) strays_.Add(tag, 1);
  worker_.Come(3, 1);
  EXPECT_FALSE(Drop(2));
  EXPECT_TRUE(Drop(2)) << "it begins where it has ended";
  EXPECT_EQ(strays_.size(), 2u);
}

TEST_F(UcxStraysTest, TheOldestIsForgottenWhenThereAreTooMany) {
  for (uint64_t tag = 0; tag <= UcxStrays::kMost; ++tag) strays_.Add(tag, 1);
  EXPECT_EQ(strays_.size(), UcxStrays::kMost);
  worker_.Come(0, 1);
  worker_.Come(1, 1);
  EXPECT_TRUE(Drop(UcxStrays::kMost));
  EXPECT_EQ(worker_.dropped(), 1);
}

TEST_F(UcxStraysTest, NothingIsLeftOfAWorkerThatIsGone) {
  strays_.Add(7, 3);
  strays_.Clear();
  worker_.Come(7, 1);
  EXPECT_FALSE(Drop());
}

}  // namespace
}  // namespace ferry
