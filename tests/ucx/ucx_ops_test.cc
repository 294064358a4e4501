// SPDX-License-Identifier: Apache-2.0
// UcxOps: how ops are cut into messages, when they are complete, and that each is answered once.
#include "transfer/ucx/ucx_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/ucx/fake_worker.h"

namespace ferry {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::Status StoppedByTest() {
  return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the test stops it");
}

class UcxOpsTest : public ::testing::Test {
 protected:
  UcxOpsTest() { link_.channel = &channel_; }
  UcxOp& Add(LaunchRole role, uint64_t number, size_t bytes) {
    TransportOp op;
    op.transfer = TransferId(number);
    op.attempt = 1;
    op.role = role;
    op.peer = PeerId(1);
    op.remote_device = GlobalDeviceId(1);
    op.tag = number;
    return ops_.Add(std::move(op), bytes, link_);
  }
  // All messages are posted, and UCX has given all of their requests back.
  void MoveAll(UcxOp& op) {
    op.posted = op.messages.size();
    op.in_flight = op.messages.size();
    for (UcxMessage& message : op.messages) ops_.Returned(message, nullptr);
  }
  std::vector<OpResult> Answers() {
    ops_.Answer();
    return std::exchange(answers_, {});
  }

  FakeUcxWorker worker_;
  UcxChannel channel_{worker_.api()};
  UcxDeviceLink link_;
  std::vector<OpResult> answers_;
  UcxOps ops_{worker_.api(), [this](std::vector<OpResult> results) {
                for (OpResult& result : results) answers_.push_back(std::move(result));
              }};
};

TEST_F(UcxOpsTest, AnOpIsCutIntoMessagesByItsBytesAlone) {
  const UcxOp& op = Add(LaunchRole::kSend, 1, 2 * kUcxMessageBytes + 5);
  ASSERT_THAT(op.messages, SizeIs(3));
  EXPECT_EQ(op.messages[0].size, kUcxMessageBytes);
  EXPECT_EQ(op.messages[2].size, 5u);
  EXPECT_THAT(Add(LaunchRole::kSend, 2, kUcxMessageBytes).messages, SizeIs(1));
  EXPECT_THAT(Add(LaunchRole::kSend, 3, 0).messages, IsEmpty());
  EXPECT_EQ(channel_.ops, 3u);
}

TEST_F(UcxOpsTest, AnOpIsAnsweredWhenAllItsRequestsHaveReturned) {
  UcxOp& op = Add(LaunchRole::kSend, 1, 2 * kUcxMessageBytes);
  op.posted = op.in_flight = 2;
  ops_.Returned(op.messages[0], nullptr);
  EXPECT_THAT(Answers(), IsEmpty());
  EXPECT_FALSE(ops_.waits());
  ops_.Returned(op.messages[1], nullptr);
  EXPECT_TRUE(ops_.waits());
  const auto answers = Answers();
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_TRUE(answers[0].status.ok());
  EXPECT_EQ(channel_.ops, 0u);
  EXPECT_EQ(ops_.Find(TransferId(1), 1), nullptr);
  EXPECT_EQ(worker_.freed(), 2);
}

TEST_F(UcxOpsTest, AStoppedReceiveIsAnsweredWhenUcxAndTheGpuHaveLetGoOfIt) {
  UcxOp& op = Add(LaunchRole::kReceive, 1, 3 * kUcxMessageBytes);
  op.posted = 3;
  op.arrived = 1;
  op.in_flight = op.copying = 1;
  ops_.Stop(op, StoppedByTest());
  EXPECT_EQ(op.link, nullptr);
  EXPECT_EQ(channel_.strays.size(), 1u) << "two messages may still come";
  ops_.Returned(op.messages[1], nullptr);
  EXPECT_THAT(Answers(), IsEmpty());
  op.copying = 0;
  ops_.FinishIfComplete(op);
  const auto answers = Answers();
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(ReasonOf(answers[0].status), Reason::kCancelled);
}

TEST_F(UcxOpsTest, AnOpOfWhichAllHasArrivedIsNotStoppedAnyMore) {
  UcxOp& op = Add(LaunchRole::kReceive, 1, 8);
  MoveAll(op);
  ops_.Stop(op, StoppedByTest());
  const auto answers = Answers();
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_TRUE(answers[0].status.ok());
}

TEST_F(UcxOpsTest, TheFirstErrorOfAnOpIsTold) {
  UcxOp& op = Add(LaunchRole::kSend, 1, 2 * kUcxMessageBytes);
  op.posted = op.in_flight = 2;
  ops_.Fail(op, absl::StatusCode::kInternal, Reason::kProtocolError, "first");
  ops_.Fail(op, absl::StatusCode::kAborted, Reason::kCommAborted, "second");
  EXPECT_NE(op.link, nullptr) << "it is stopped after progress, not in a callback";
  ops_.StopFailed();
  EXPECT_EQ(op.link, nullptr);
  for (UcxMessage& message : op.messages) ops_.Returned(message, nullptr);
  const auto answers = Answers();
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(ReasonOf(answers[0].status), Reason::kProtocolError);
}

TEST_F(UcxOpsTest, QueuedSendsOfALinkThatHasFailedGoOnUnlessTheyAreToStopToo) {
  Add(LaunchRole::kReceive, 1, 8);
  Add(LaunchRole::kSend, 2, 8);  // UCX has nothing of it
  ops_.StopAll(link_, StoppedByTest(), /*queued=*/false);
  EXPECT_EQ(ops_.Find(TransferId(1), 1)->link, nullptr);
  EXPECT_NE(ops_.Find(TransferId(2), 1)->link, nullptr);
  ops_.StopAll(link_, StoppedByTest(), /*queued=*/true);
  EXPECT_EQ(ops_.Find(TransferId(2), 1)->link, nullptr);
  EXPECT_THAT(Answers(), SizeIs(2));
}

TEST_F(UcxOpsTest, WhatNeverReturnsIsAnsweredWithItsWorker) {
  UcxOp& op = Add(LaunchRole::kSend, 1, 8);
  op.posted = op.in_flight = 1;
  ops_.Stop(op, StoppedByTest());
  EXPECT_THAT(Answers(), IsEmpty());
  ops_.AnswerAll();
  EXPECT_THAT(std::exchange(answers_, {}), SizeIs(1));
  EXPECT_THAT(Answers(), IsEmpty());
}

}  // namespace
}  // namespace ferry
