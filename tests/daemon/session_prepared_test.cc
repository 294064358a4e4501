// SPDX-License-Identifier: Apache-2.0
// Prepared batches of a session: numbers, words, endings, release.
#include "daemon/rpc/convert.h"
#include "tests/daemon/session_rig.h"

namespace ferry {
namespace {

using testing::Is;
using ::testing::IsEmpty;
using testing::kNow;
using testing::SessionRig;
using ::testing::SizeIs;

class SessionPreparedTest : public ::testing::Test {
 protected:
  SessionPreparedTest()
      : rig_({{1000, 3, 10'000, 4096}, absl::Seconds(60)}), session_(rig_.session) {}
  PostBatch Prepare(size_t count) {
    PostBatch batch = SessionRig::Empty(count);
    batch.prepare = true;
    for (TransferSpec& spec : batch.specs) spec.prepared = true;
    return batch;
  }
  // Its number.
  uint32_t Post(size_t count = 1) {
    batches_.push_back(Prepare(count));
    replies_.push_back(rig_.Post(batches_.back()));
    return replies_.back().prepared_batch;
  }
  void End(size_t which, size_t i) {
    Ended ended;
    ended.transfer = MakeTransferId(session_.id(), replies_[which].first_transfer_id + i);
    ended.over_timeline = batches_[which].specs[i].over_timeline;
    ended.prepared = true;
    ended.status = Error(absl::StatusCode::kCancelled, Reason::kCancelled, "over");
    session_.OnEnded(ended);
  }
  void Release(uint32_t number) { session_.prepared().Find(number)->released = {7, 8}; }
  uint64_t Over(uint32_t number) { return rig_.pages().prepared_over[number].value; }

  SessionRig rig_;
  Session& session_;
  std::vector<PostBatch> batches_;
  std::vector<PostReply> replies_;
};

TEST_F(SessionPreparedTest, NumbersAreTheLowestFreeOnes) {
  EXPECT_EQ(Post(), 0u);
  EXPECT_EQ(Post(3), 1u);
  EXPECT_EQ(Post(), 2u);
  EXPECT_EQ(batches_[1].specs[2].over_timeline, 1u);
  End(1, 0), End(1, 1), End(1, 2);
  EXPECT_EQ(Post(), 3u) << "over, but not released: its client may still look at the word";
  Release(1);
  ASSERT_THAT(session_.TakeReleased(), SizeIs(1));
  EXPECT_EQ(Post(), 1u);
  EXPECT_EQ(Over(1), 0u);
}

TEST_F(SessionPreparedTest, TheWordEndsWithTheLastTransfer) {
  const uint32_t number = Post(2);
  End(0, 1);
  EXPECT_EQ(Over(number), 0u);
  End(0, 0);
  EXPECT_EQ(Over(number), FERRY_PREPARED_ENDED);
  EXPECT_EQ(rig_.pages().prepared_over[number].first_failed, 1u);
  EXPECT_EQ(session_.use().transfers_in_flight, 0u);
  EXPECT_THAT(*session_.endings().FindFailure(replies_[0].first_transfer_id + 1),
              Is("CANCELLED/CANCELLED"));
  EXPECT_EQ(session_.endings().next(), 3u) << "watchers see them end as others";
}

TEST_F(SessionPreparedTest, AReleaseIsAnsweredWhenNothingIsLeft) {
  const uint32_t number = Post();
  Release(number);
  EXPECT_THAT(session_.TakeReleased(), IsEmpty());
  End(0, 0);
  const auto askers = session_.TakeReleased();
  ASSERT_THAT(askers, SizeIs(1));
  EXPECT_EQ(askers[0].connection, 7u);
  EXPECT_EQ(askers[0].sequence, 8u);
  EXPECT_EQ(session_.prepared().Find(number), nullptr);
}

TEST_F(SessionPreparedTest, ThereMayBe256) {
  for (int i = 0; i < FERRY_PREPARED_BATCHES; ++i) Post();
  PostBatch more = Prepare(1);
  const std::vector<Violation> violations = session_.CheckAndComplete(more, kNow);
  ASSERT_THAT(violations, SizeIs(1));
  EXPECT_THAT(violations[0].status, Is("RESOURCE_EXHAUSTED/QUEUE_FULL", "256 prepared batches"));
  PostBatch ordinary = SessionRig::Empty(1);
  EXPECT_THAT(session_.CheckAndComplete(ordinary, kNow), IsEmpty());
}

TEST_F(SessionPreparedTest, ItCountsWhatIsArmedAndWhatWasFired) {
  const uint32_t number = Post(2);
  PreparedBatch& batch = *session_.prepared().Find(number)->batch;
  EXPECT_EQ(session_.prepared().armed(), 0u);
  batch.Arm(), batch.Arm();
  EXPECT_EQ(session_.prepared().armed(), 1u);
  batch.Over(1, 2), batch.Over(2, 2);
  EXPECT_EQ(session_.prepared().firings(), 2u);
  End(0, 0), End(0, 1);
  EXPECT_EQ(session_.prepared().armed(), 0u);
  Release(number);
  session_.TakeReleased();
  EXPECT_EQ(session_.prepared().firings(), 2u) << "what is forgotten still counts";
}

TEST(ConvertPrepared, WhatMeansNothingIsRefused) {
  v1::CrossHostReceiveRequest request;
  request.set_prepare(true);
  request.add_src_global_device_ids(2);
  request.add_transfer_keys("k");
  request.add_buffers();
  EXPECT_THAT(Convert(request).violations, IsEmpty());
  EXPECT_TRUE(Convert(request).prepare);
  EXPECT_TRUE(Convert(request).specs[0].prepared);
  request.mutable_buffers(0)->mutable_defined_at()->set_value(1);
  const PostBatch batch = Convert(request);
  ASSERT_THAT(batch.violations, SizeIs(1));
  EXPECT_EQ(batch.violations[0].field, "buffers[0].defined_at");
  v1::CrossHostSendRequest empty;
  empty.set_prepare(true);
  EXPECT_THAT(Convert(empty).violations, SizeIs(1));
}

}  // namespace
}  // namespace ferry
