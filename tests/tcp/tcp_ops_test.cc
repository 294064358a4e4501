// SPDX-License-Identifier: Apache-2.0
// TcpOps: which ops it takes, and that each is answered once.
#include "transfer/tcp/tcp_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/tcp/made_ops.h"

namespace ferry {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::Status EndedByTest() {
  return Error(absl::StatusCode::kAborted, Reason::kCancelled, "the test ends it");
}

class TcpOpsTest : public ::testing::Test {
 protected:
  TcpOp* Add(LaunchRole role, uint64_t number) {
    return ops_.Add(MadeOp(role, number, memory_, sizeof(memory_)), link_);
  }
  std::vector<OpResult> Answers() {
    ops_.Answer();
    return std::exchange(answers_, {});
  }

  std::byte memory_[64];
  Lane lane_{"lane", absl::ZeroDuration()};
  std::vector<OpResult> answers_;
  TcpDeviceLink link_, other_link_;
  TcpStaging staging_{nullptr};
  TcpBundles bundles_{lane_};
  TcpOps ops_{[this](std::vector<OpResult> results) {
                for (OpResult& result : results) answers_.push_back(std::move(result));
              },
              bundles_, staging_};
};

TEST_F(TcpOpsTest, ATagIsOneOpsOnItsLinkInItsDirection) {
  TcpOp* const send = Add(LaunchRole::kSend, 1);
  ASSERT_NE(send, nullptr);
  EXPECT_EQ(link_.tags[0].at(1), send);
  TransportOp again = MadeOp(LaunchRole::kSend, 2, memory_, 8);
  again.tag = 1;
  EXPECT_EQ(ops_.Add(std::move(again), link_), nullptr);
  const auto answers = Answers();
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].transfer, TransferId(2));
  EXPECT_EQ(ReasonOf(answers[0].status), Reason::kProtocolError);
  TransportOp back = MadeOp(LaunchRole::kReceive, 3, memory_, 8);
  back.tag = 1;
  EXPECT_NE(ops_.Add(std::move(back), link_), nullptr);
  TransportOp elsewhere = MadeOp(LaunchRole::kSend, 4, memory_, 8);
  elsewhere.tag = 1;
  EXPECT_NE(ops_.Add(std::move(elsewhere), other_link_), nullptr);
  ops_.End(*send, absl::OkStatus());
  EXPECT_NE(Add(LaunchRole::kSend, 1), nullptr) << "the tag is free again";
}

TEST_F(TcpOpsTest, AnOpThatEndsIsInNoQueueAndIsAnsweredOnce) {
  TcpOp& send = *Add(LaunchRole::kSend, 1);
  send.turn.emplace(send);
  link_.queues[send.small()].Add(*send.turn);
  EXPECT_TRUE(ops_.active());
  EXPECT_EQ(ops_.Find(TransferId(1), 1), &send);
  EXPECT_EQ(ops_.Find(TransferId(1), 2), nullptr);
  ops_.End(send, EndedByTest());
  EXPECT_TRUE(link_.queues[1].empty());
  EXPECT_THAT(link_.tags[0], IsEmpty());
  EXPECT_FALSE(ops_.active());
  EXPECT_TRUE(ops_.empty());
  EXPECT_TRUE(ops_.has_answers());
  const auto answers = Answers();
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].attempt, 1u);
  EXPECT_EQ(ReasonOf(answers[0].status), Reason::kCancelled);
  EXPECT_THAT(Answers(), IsEmpty());
}

TEST_F(TcpOpsTest, AnOpIsAnsweredWhenNothingCopiesItsBytesAnyMore) {
  TcpOp& receive = *Add(LaunchRole::kReceive, 1);
  receive.copying = 2;
  ops_.End(receive, EndedByTest());
  ops_.End(receive, absl::OkStatus());  // it has ended before
  EXPECT_FALSE(ops_.active());
  --receive.copying;
  ops_.AnswerIfQuiet(receive);
  EXPECT_FALSE(ops_.has_answers());
  EXPECT_EQ(ops_.Find(TransferId(1), 1), &receive);
  --receive.copying;
  ops_.AnswerIfQuiet(receive);
  const auto answers = Answers();
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(ReasonOf(answers[0].status), Reason::kCancelled);
  EXPECT_TRUE(ops_.empty());
}

TEST_F(TcpOpsTest, AnOpThatGoesOnIsNotAnsweredWhenACopyIsOver) {
  ops_.AnswerIfQuiet(*Add(LaunchRole::kReceive, 1));
  EXPECT_FALSE(ops_.has_answers());
  EXPECT_TRUE(ops_.active());
}

TEST_F(TcpOpsTest, TheOpsOfOneLinkEndTogether) {
  for (uint64_t number : {1, 2, 3}) Add(LaunchRole::kReceive, number)->copying = number == 3;
  ASSERT_NE(ops_.Add(MadeOp(LaunchRole::kReceive, 4, memory_, 8), other_link_), nullptr);
  ops_.EndAll(link_, EndedByTest());
  EXPECT_THAT(Answers(), SizeIs(2)) << "bytes of the third one are being copied";
  EXPECT_THAT(link_.tags[1], IsEmpty());
  EXPECT_THAT(other_link_.tags[1], SizeIs(1));
}

}  // namespace
}  // namespace ferry
