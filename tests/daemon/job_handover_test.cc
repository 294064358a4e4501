// SPDX-License-Identifier: Apache-2.0
// Jobs behind one that the compute thread, a real one here, takes its time to run: what has not
// begun ends at once, what has begun is stopped.
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/daemon/job_transfers_rig.h"
#include "tests/support/await.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

// A minute or so of work: it is always stopped.
constexpr char kLong[] =
    "program 1\n"
    "buffer @x read_write 262144 donated\n"
    "%x = input @x : f32[256,256]\n"
    "%r = repeat %x trips=1048576 (%i, %a)\n"
    "  %t = transpose %a permutation=[1,0]\n"
    "  yield %t\n"
    "store @x, %r\n";

class JobHandoverTest : public JobTransfersRig {
 protected:
  // Nothing that has scratch is put aside.
  JobHandoverTest() : JobTransfersRig({}, SessionTableRig::DefaultOptions(), {0, 0}) {}
  void SetUp() override {
    JobTransfersRig::SetUp();
    other_ = rig_.Open(kConnection + 1, kBob);
    memory_ = rig_.RegisterGood(kConnection + 1, 262144);
  }
  void TearDown() override {
    jobs_.CancelAll(Why("the test is over"));
    Finish();
  }
  static absl::Status Why(const std::string& text) {
    return Error(absl::StatusCode::kCancelled, Reason::kCancelled, text);
  }
  static TransferId IdOf(const Session& session, const PostReply& reply) {
    return MakeTransferId(session.id(), reply.first_transfer_id);
  }
  // Back when another session's long job has begun. Until Finish nothing else may run tasks of
  // compute.
  void Begin() {
    PostBatch batch;
    AddRun(batch, Fingerprint(kLong), {{"x", At(memory_, 0, 262144)}});
    batch.deadlines[0] = absl::Hours(1);
    const PostReply reply = jobs_.Post(*other_, std::move(batch));
    ASSERT_THAT(reply.status, Is("OK"));
    long_ = IdOf(*other_, reply);
    EXPECT_STREQ(jobs_.Find(long_)->state, "ready");
    thread_ = std::thread([this] { compute_.RunAll(); });
    ASSERT_TRUE(Await([&] { return jobs_.Find(long_)->state == std::string("running"); }));
  }
  void Finish() {
    if (thread_.joinable()) thread_.join();
    Run();
  }
  PostReply PostHalf(uint64_t y, absl::Duration deadline = absl::ZeroDuration()) {
    PostBatch batch = Half(arena_, 0, y);
    batch.deadlines[0] = deadline;
    const PostReply reply = jobs_.Post(*session_, std::move(batch));
    EXPECT_THAT(reply.status, Is("OK"));
    return reply;
  }

  Session* other_ = nullptr;
  ArenaId memory_;
  TransferId long_;
  std::thread thread_;
};

TEST_F(JobHandoverTest, WhatHasNotBegunEndsByItsDeadlineAndLetsGoOfItsMemory) {
  Begin();
  const TransferId first = IdOf(*session_, PostHalf(64, absl::Seconds(1)));
  const TransferId second = IdOf(*session_, PostHalf(128, absl::Seconds(1)));
  for (const TransferId id : {first, second}) {
    EXPECT_STREQ(jobs_.Find(id)->state, "ready");
    EXPECT_EQ(jobs_.Find(id)->waits_for, "its turn: 1 running, 2 ready");
  }
  rig_.control.Advance(absl::Seconds(1));
  jobs_.OnTime(rig_.control.Now());
  ASSERT_EQ(ended_.size(), 2u);
  for (const Ended& ended : ended_) {
    EXPECT_THAT(ended.status, Is("DEADLINE_EXCEEDED/NOT_READY",
                                 "not begun within 1 s; it waited for its turn: 1 running"));
  }
  EXPECT_EQ(session_->timelines().over_value(0), 2u);
  EXPECT_EQ(rig_.table.FindArena(arena_)->transfers, 0u);
  EXPECT_STREQ(jobs_.Find(long_)->state, "running");
  Floats(arena_, 0)[1] = 8;
  Floats(arena_, 64)[1] = 7;

  const TransferId next = IdOf(*session_, PostHalf(192));
  EXPECT_STREQ(jobs_.Find(next)->state, "ready");
  EXPECT_TRUE(jobs_.Cancel(long_, Why("enough")));
  Finish();
  EXPECT_EQ(Floats(arena_, 64)[1], 7) << "it was skipped";
  EXPECT_EQ(Floats(arena_, 192)[1], 4);
  EXPECT_EQ(jobs_.counts().ok, 1u);
  EXPECT_EQ(jobs_.in_flight(), 0u);
}

TEST_F(JobHandoverTest, WhatHasBegunIsStoppedAndSaysWhereAndTheFirstReason) {
  Begin();
  EXPECT_TRUE(jobs_.Cancel(long_, Why("enough")));
  EXPECT_TRUE(jobs_.Cancel(long_, Why("again")));
  Finish();
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_THAT(ended_[0].status, Is("CANCELLED/CANCELLED", "enough; it was stopped in step "));
}

TEST_F(JobHandoverTest, WhatHasBegunIsStoppedByItsDeadline) {
  Begin();
  rig_.control.Advance(absl::Hours(1));
  jobs_.OnTime(rig_.control.Now());
  jobs_.OnTime(rig_.control.Now());
  Finish();
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_THAT(ended_[0].status,
              Is("DEADLINE_EXCEEDED/NOT_READY", "not over within 60 min; it was stopped in step "));
  EXPECT_THAT(std::string(ended_[0].status.message()), HasSubstr(" of the plan"));
}

TEST_F(JobHandoverTest, CancelledAndWithItsSessionItEndsAtOnce) {
  Begin();
  const TransferId first = IdOf(*session_, PostHalf(64));
  EXPECT_TRUE(jobs_.Cancel(first, Why("enough")));
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0].status.message(), "enough");
  for (const uint64_t y : {128, 192, 256}) PostHalf(y);
  const SessionId id = session_->id();
  rig_.table.OnClosed(kConnection);
  jobs_.EndSession(id);
  EXPECT_EQ(ended_.size(), 4u);
  EXPECT_EQ(rig_.table.Find(id), nullptr);
}

TEST_F(JobHandoverTest, NeitherSectionOfAJobThatSendsIsWaitedFor) {
  // One has its second section before it, the other its first.
  const PostReply second = jobs_.Post(*session_, Exchange());
  ASSERT_THAT(second.status, Is("OK"));
  Run();
  const TransferId receive = Posted(Side::kReceive);
  const std::map<TransferId, TransferSpec> begun = std::exchange(posted_, {});
  Begin();
  Ended received;
  received.transfer = receive;
  received.bytes = 64;
  received.layout = begun.at(receive).layout;
  OnOver(received);
  jobs_.Join();
  EXPECT_STREQ(jobs_.Find(IdOf(*session_, second))->state, "ready");
  rig_.control.Advance(absl::Seconds(60));
  jobs_.OnTime(rig_.control.Now());
  ASSERT_EQ(poisoned_.size(), 1u);
  EXPECT_THAT(poisoned_.begin()->second,
              Is("ABORTED/POISONED", "not over within 60 s; it waited for its turn: 1 running"));
  Ended sent;
  sent.transfer = poisoned_.begin()->first;
  sent.bytes = 64;
  sent.layout = begun.at(sent.transfer).layout;
  sent.status = poisoned_.begin()->second;
  OnOver(sent);
  jobs_.Join();
  EXPECT_EQ(jobs_.Find(IdOf(*session_, second)), std::nullopt);
  EXPECT_EQ(rig_.table.job_memory().spares(session_->id()).size(), 1u) << "its memory is let go of";

  const PostReply first = jobs_.Post(*session_, Exchange(128, "/2"));
  ASSERT_THAT(first.status, Is("OK"));
  EXPECT_STREQ(jobs_.Find(IdOf(*session_, first))->state, "ready");
  poisoned_.clear();
  EXPECT_TRUE(jobs_.Cancel(IdOf(*session_, first), Why("enough")));
  EXPECT_EQ(poisoned_.size(), 2u);
  for (const auto& [id, why] : std::map(poisoned_)) {
    Ended ended;
    ended.transfer = id;
    ended.bytes = 64;
    ended.layout = posted_.at(id).layout;
    ended.status = why;
    OnOver(ended);
  }
  jobs_.Join();
  EXPECT_EQ(jobs_.in_flight(), 1u);
  EXPECT_EQ(rig_.table.job_memory().spares(session_->id()).size(), 1u);
  EXPECT_STREQ(jobs_.Find(long_)->state, "running");
}

}  // namespace
}  // namespace ferry::testing
