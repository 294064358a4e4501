// SPDX-License-Identifier: Apache-2.0
// Long jobs of one session and others' beside them: what is long is put aside between launches. The
// compute thread is the test's; how long a run has lasted is not.
#include "tests/daemon/job_transfers_rig.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;

// A second or so of small launches, unless it is stopped: LONG_TRIPS is of CMakeLists.txt.
constexpr char kSecond[] =
    "program 1\n"
    "buffer @x read_write 262144 donated\n"
    "%x = input @x : f32[256,256]\n"
    "%r = repeat %x trips=" LONG_TRIPS
    " (%i, %a)\n"
    "  %t = transpose %a permutation=[1,0]\n"
    "  yield %t\n"
    "store @x, %r\n";

// A part of that, and what it makes is sent.
constexpr char kSends[] =
    "program 1\n"
    "buffer @x read 65536\n"
    "%x = input @x : f32[128,128]\n"
    "%r = repeat %x trips=" LONG_TRIPS
    " (%i, %a)\n"
    "  %t = transpose %a permutation=[1,0]\n"
    "  yield %t\n"
    "send %r peer=\"other\" key=\"k\"\n";

class JobShareTest : public JobTransfersRig {
 protected:
  void SetUp() override {
    JobTransfersRig::SetUp();
    other_ = rig_.Open(kConnection + 1, kBob);
    memory_ = rig_.RegisterGood(kConnection + 1, 2 * 262144);
    for (size_t i = 0; i < 256 * 256; ++i) Floats(memory_, 0)[i] = static_cast<float>(i);
    long_ = Fingerprint(kSecond);
  }
  TransferId PostLong(uint64_t offset = 0) {
    PostBatch batch;
    AddRun(batch, long_, {{"x", At(memory_, offset, 262144)}});
    batch.deadlines[0] = absl::Hours(1);
    const PostReply reply = jobs_.Post(*other_, std::move(batch));
    EXPECT_THAT(reply.status, Is("OK"));
    return MakeTransferId(other_->id(), reply.first_transfer_id);
  }
  TransferId PostShort(Session& session, ArenaId arena, uint64_t y = 64) {
    const PostReply reply = jobs_.Post(session, Half(arena, 0, y));
    EXPECT_THAT(reply.status, Is("OK"));
    return MakeTransferId(session.id(), reply.first_transfer_id);
  }
  std::vector<TransferId> Over() const {
    std::vector<TransferId> over;
    for (const Ended& ended : ended_) over.push_back(ended.transfer);
    return over;
  }

  Session* other_ = nullptr;
  ArenaId memory_;
  std::string long_;
};

TEST_F(JobShareTest, AShortJobOfAnotherSessionEndsWhileALongOneRuns) {
  const TransferId first = PostLong();
  const TransferId second = PostShort(*session_, arena_);
  Run();
  EXPECT_THAT(Over(), ElementsAre(second, first));
  EXPECT_EQ(jobs_.counts().ok, 2u);
  EXPECT_EQ(Floats(arena_, 64)[1], 0.5F);
  for (const size_t i : {0, 1, 255, 256, 65535}) {
    EXPECT_EQ(Floats(memory_, 0)[i], static_cast<float>(i)) << "turned an even number of times";
  }
}

TEST_F(JobShareTest, WhatIsPutAsideIsNotOvertakenByItsOwnSession) {
  const TransferId first = PostLong();
  const TransferId own = PostShort(*other_, memory_, 262144);
  const TransferId next = PostShort(*session_, arena_);
  EXPECT_STREQ(jobs_.Find(own)->state, "ready") << "it was taken back";
  Run();
  EXPECT_THAT(Over(), ElementsAre(next, first, own));
  EXPECT_EQ(jobs_.counts().ok, 3u);
}

TEST_F(JobShareTest, ALongOneAloneIsNotPutAside) {
  const TransferId first = PostLong();
  const TransferId second = PostLong(262144);
  compute_.RunAll();
  rig_.control.RunAll();
  EXPECT_THAT(Over(), ElementsAre(first, second));
}

TEST_F(JobShareTest, WhatIsPutAsideEndsAtOnceAndWithItsSession) {
  const TransferId first = PostLong();
  const TransferId second = PostShort(*session_, arena_);
  compute_.RunAll();
  rig_.control.RunAll();
  ASSERT_THAT(Over(), ElementsAre(second));
  EXPECT_STREQ(jobs_.Find(first)->state, "ready");
  EXPECT_TRUE(jobs_.Cancel(first, Error(absl::StatusCode::kCancelled, Reason::kCancelled, "stop")));
  ASSERT_THAT(Over(), ElementsAre(second, first));
  EXPECT_THAT(ended_[1].status, Is("CANCELLED/CANCELLED", "stop"));
  Run();
  EXPECT_EQ(jobs_.in_flight(), 0u);
  // What the compute thread had of it is gone: its session's next one is not held up by it.
  const TransferId next = PostShort(*other_, memory_, 262144);
  Run();
  EXPECT_THAT(Over(), ElementsAre(second, first, next));
}

// It runs no more, though it lasts until the last of its transfers lets go.
TEST_F(JobShareTest, WhatWasPutAsideAndIsCancelledHoldsUpNobodyWhileItsTransfersLast) {
  PostBatch batch;
  AddRun(batch, Fingerprint(kSends), {{"x", At(memory_, 0, 65536)}});
  batch.jobs[0].peers = {{"other", GlobalDeviceId(7)}};
  batch.deadlines[0] = absl::Hours(1);
  const PostReply reply = jobs_.Post(*other_, std::move(batch));
  ASSERT_THAT(reply.status, Is("OK")) << ::testing::PrintToString(Fields(reply));
  const TransferId first = MakeTransferId(other_->id(), reply.first_transfer_id);
  rig_.Settle();
  jobs_.Join();  // its memory is there
  const TransferId second = PostShort(*session_, arena_);
  compute_.RunAll();
  rig_.control.RunAll();
  ASSERT_THAT(Over(), ElementsAre(second));
  EXPECT_STREQ(jobs_.Find(first)->state, "ready") << "put aside";
  EXPECT_TRUE(jobs_.Cancel(first, Error(absl::StatusCode::kCancelled, Reason::kCancelled, "stop")));
  const TransferId own = PostShort(*other_, memory_, 262144);
  Run();
  EXPECT_THAT(Over(), ElementsAre(second, own));
  JobTransfersRig::Over(Posted(Side::kSend),
                        Error(absl::StatusCode::kCancelled, Reason::kCancelled, "stop"));
  EXPECT_EQ(Over().back(), first);
}

TEST_F(JobShareTest, LongOnesOfTwoSessionsTakeTurns) {
  const ArenaId mine = rig_.RegisterGood(kConnection, 262144);
  const TransferId first = PostLong();
  PostBatch batch;
  AddRun(batch, long_, {{"x", At(mine, 0, 262144)}});
  batch.deadlines[0] = absl::Hours(1);
  const PostReply reply = jobs_.Post(*session_, std::move(batch));
  ASSERT_THAT(reply.status, Is("OK"));
  for (int turn = 0; turn < 4; ++turn) {
    compute_.RunAll();
    rig_.control.RunAll();
    ASSERT_THAT(Over(), ElementsAre()) << turn;
  }
  jobs_.CancelAll(Error(absl::StatusCode::kCancelled, Reason::kCancelled, "enough"));
  Run();
  EXPECT_EQ(ended_.size(), 2u);
  EXPECT_EQ(jobs_.Find(first), std::nullopt);
}

TEST_F(JobShareTest, AFiringIsPutAsideForPostedJobsOfOthersButNotForItsOwnSessions) {
  PostBatch batch;
  AddRun(batch, long_, {{"x", At(memory_, 0, 262144)}});
  batch.prepare = true;
  const PostReply reply = jobs_.Post(*other_, std::move(batch));
  ASSERT_THAT(reply.status, Is("OK"));
  compute_.RunAll();
  auto& pages = *static_cast<ferry_timeline_pages*>(const_cast<void*>(other_->timelines().begin()));
  pages.prepared_defined[reply.prepared_batch].value = 1;
  const PreparedBatch& words = *other_->prepared().Find(reply.prepared_batch)->batch;
  const TransferId next = PostShort(*session_, arena_);
  EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(words.begun(), 1u);
  EXPECT_EQ(words.firings(), 0u);
  compute_.RunAll();
  rig_.control.RunAll();
  EXPECT_THAT(Over(), ElementsAre(next));

  const TransferId own = PostShort(*other_, memory_, 262144);
  compute_.RunAll();
  rig_.control.RunAll();
  EXPECT_THAT(Over(), ElementsAre(next)) << "it may have the firing's memory";
  while (words.firings() == 0) ASSERT_TRUE(runner_.Poll());
  for (const size_t i : {0, 1, 255, 65535}) {
    EXPECT_EQ(Floats(memory_, 0)[i], static_cast<float>(i)) << "turned an even number of times";
  }
  compute_.RunAll();
  rig_.control.RunAll();
  EXPECT_THAT(Over(), ElementsAre(next, own));
}

}  // namespace
}  // namespace ferry::testing
