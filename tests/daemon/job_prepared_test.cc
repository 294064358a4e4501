// SPDX-License-Identifier: Apache-2.0
// Prepared jobs: fired by words, joined to prepared transfers, ended with them. The compute thread
// is the test's, and so are the transfers.
#include <sys/resource.h>

#include <fstream>

#include "tests/daemon/job_table_rig.h"
#include "transfer/overlap.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobPreparedTest : public JobTableTest {
 protected:
  JobPreparedTest() : session_(*rig_.Open(kConnection)) {
    arena_ = rig_.RegisterGood(kConnection, 4096);
  }
  static ferry_timeline_pages& Pages(Session& session) {
    return *static_cast<ferry_timeline_pages*>(const_cast<void*>(session.timelines().begin()));
  }
  uint64_t& Word(uint32_t number) { return Pages(session_).prepared_defined[number].value; }
  uint64_t Over(uint32_t number) { return Pages(session_).prepared_over[number].value; }

  // From 64 bytes of the arena to others, once it is armed.
  PostBatch Prepared(std::optional<uint32_t> in = std::nullopt,
                     std::optional<uint32_t> out = std::nullopt, uint64_t y = 64) {
    PostBatch batch;
    batch.prepare = true;
    AddJob(batch, in, out, y);
    return batch;
  }
  void AddJob(PostBatch& batch, std::optional<uint32_t> in, std::optional<uint32_t> out,
              uint64_t y) {
    AddRun(batch, Fingerprint(), {{"x", At(arena_, 0)}, {"y", At(arena_, y)}});
    batch.jobs.back().bindings[0].prepared = in;
    batch.jobs.back().bindings[1].prepared = out;
    batch.specs.back().prepared = true;
  }
  PostReply Post(PostBatch batch) {
    PostReply reply = jobs_.Post(session_, std::move(batch));
    EXPECT_THAT(reply.status, Is("OK")) << ::testing::PrintToString(Fields(reply));
    RunAll();
    return reply;
  }
  TransferId IdOf(const PostReply& reply, uint64_t i = 0) {
    return MakeTransferId(session_.id(), reply.first_transfer_id + i);
  }
  // A prepared transfer of the test's own, armed, of what Prepared() reads or writes; its number.
  uint32_t Transfer(Side side) {
    PostBatch batch;
    batch.device = GlobalDeviceId(1);
    batch.side = side;
    batch.prepare = true;
    batch.specs.resize(1);
    batch.specs[0].layout = {{arena_, side == Side::kSend ? uint64_t{64} : 0, 64}};
    batch.specs[0].prepared = true;
    batch.deadlines.resize(1);
    batch.extents =
        Union({batch.specs[0].layout.extents().begin(), batch.specs[0].layout.extents().end()});
    EXPECT_THAT(session_.CheckAndComplete(batch, absl::UnixEpoch()), IsEmpty());
    const PostReply reply = session_.Admit(batch);
    Words(reply.prepared_batch).Arm();
    transfers_[reply.prepared_batch] = batch.specs[0].layout;
    return reply.prepared_batch;
  }
  PreparedBatch& Words(uint32_t number) { return *session_.prepared().Find(number)->batch; }
  void EndTransfer(uint32_t number, absl::Status status) {
    Ended ended;
    ended.transfer = session_.prepared().Find(number)->first;
    ended.over_timeline = number;
    ended.prepared = true;
    ended.layout = transfers_[number];
    ended.status = std::move(status);
    OnOver(ended);
  }
  std::string Status(TransferId id) {
    for (const Ended& ended : ended_) {
      if (ended.transfer == id)
        return absl::StrCat(NameOf(ended.status), " ", ended.status.message());
    }
    return "not over";
  }

  Session& session_;
  ArenaId arena_;
  std::map<uint32_t, Layout> transfers_;
};

TEST_F(JobPreparedTest, IsFiredByItsWordAloneAndServesThoseStoredAhead) {
  const PostReply reply = Post(Prepared());
  const uint32_t number = reply.prepared_batch;
  EXPECT_EQ(reply.first_over_value, 0u);
  EXPECT_EQ(heard_, 1);
  EXPECT_TRUE(runner_.Watching());
  EXPECT_FALSE(runner_.Poll());
  EXPECT_TRUE(runner_.PrepareToPark());
  EXPECT_THAT(jobs_.Find(IdOf(reply))->waits_for, HasSubstr("has not reached 1"));
  Floats(arena_, 0)[3] = 5;
  Word(number) = 1;
  EXPECT_FALSE(runner_.PrepareToPark());
  EXPECT_STREQ(jobs_.Find(IdOf(reply))->state, "armed");
  EXPECT_EQ(jobs_.Find(IdOf(reply))->waits_for, "its turn");
  EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(Floats(arena_, 64)[3], 2.5f);
  EXPECT_EQ(Over(number), 1u);
  EXPECT_FALSE(runner_.Poll());
  Word(number) = 4;
  for (uint64_t n = 2; n <= 4; ++n) {
    EXPECT_TRUE(runner_.Poll());
    EXPECT_EQ(Over(number), n);
  }
  EXPECT_FALSE(runner_.Poll());
  EXPECT_EQ(jobs_.Find(IdOf(reply))->firings, 4u);
  EXPECT_GT(jobs_.use().run_time, absl::ZeroDuration());
  EXPECT_THAT(ended_, IsEmpty());
  EXPECT_EQ(session_.use().transfers_in_flight, 1u);
}

constexpr char kWeighted[] =
    "program 1\nbuffer @x read 22000\nbuffer @w read 22000 constant\nbuffer @y write 40000\n"
    "%x = input @x : f16[100,110]\n%w = input @w : f16[110,100]\n"
    "%p = dot_general %x, %w lhs_contract=[1] rhs_contract=[0] : f32[100,100]\nstore @y, %p\n";

// What is made of a constant buffer by the first firing serves the next ones, until the job is
// prepared anew.
TEST_F(JobPreparedTest, KeepsWhatItMakesOfConstantBuffers) {
  const ArenaId arena = rig_.RegisterGood(kConnection, 131072);
  auto* const bytes = reinterpret_cast<uint8_t*>(Floats(arena, 0));
  const auto fill = [&](uint64_t offset, uint8_t high) {
    for (uint64_t i = 0; i < 22000; i += 2) bytes[offset + i + 1] = high;
  };
  const auto prepare = [&] {
    PostBatch batch;
    batch.prepare = true;
    AddRun(batch, Fingerprint(kWeighted),
           {{"x", At(arena, 0, 22000)},
            {"w", At(arena, 22528, 22000)},
            {"y", At(arena, 45056, 40000)}});
    batch.specs.back().prepared = true;
    return Post(std::move(batch));
  };
  const bool keeps = Compile(std::string(kWeighted)).program->from_constants_bytes() > 0;
  fill(0, 0x3C);      // 1
  fill(22528, 0x40);  // 2
  const PostReply first = prepare();
  Word(first.prepared_batch) = 1;
  EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(*Floats(arena, 45056), 220);
  fill(0, 0x40);
  fill(22528, 0x3C);
  Word(first.prepared_batch) = 2;
  EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(*Floats(arena, 45056), keeps ? 440 : 220);
  const PostReply second = prepare();
  Word(second.prepared_batch) = 1;
  EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(*Floats(arena, 45056), 220);
}

// A session that keeps much leaves what the others may keep alone.
class JobsKeepTest : public JobTableTest {
 protected:
  static constexpr uint64_t kOfSession = 80000;  // for one job's weights, not for two
  JobsKeepTest()
      : JobTableTest({}, SessionTableRig::DefaultOptions(), {kOfSession, 10 * kOfSession}) {}
  // A prepared job of the session that has been fired once.
  void FireOne(Session& session, ArenaId arena) {
    PostBatch batch;
    batch.prepare = true;
    AddRun(batch, Fingerprint(kWeighted),
           {{"x", At(arena, 0, 22000)},
            {"w", At(arena, 22528, 22000)},
            {"y", At(arena, 45056, 40000)}});
    batch.specs.back().prepared = true;
    const PostReply reply = jobs_.Post(session, std::move(batch));
    ASSERT_THAT(reply.status, Is("OK"));
    RunAll();
    static_cast<ferry_timeline_pages*>(const_cast<void*>(session.timelines().begin()))
        ->prepared_defined[reply.prepared_batch]
        .value = 1;
    EXPECT_TRUE(runner_.Poll());
  }
};

TEST_F(JobsKeepTest, EachSessionHasItsOwnBound) {
  const uint64_t each = Compile(std::string(kWeighted)).program->from_constants_bytes();
  ASSERT_LE(each, kOfSession);
  Session& greedy = *rig_.Open(kConnection);
  const ArenaId arena = rig_.RegisterGood(kConnection, 131072);
  for (int i = 0; i < 3; ++i) FireOne(greedy, arena);
  const bool one_fits = 2 * each > kOfSession;
  EXPECT_EQ(runner_.kept_bytes(), one_fits ? each : 0);
  Session& modest = *rig_.Open(kConnection + 1, kBob);
  FireOne(modest, rig_.RegisterGood(kConnection + 1, 131072));
  EXPECT_EQ(runner_.kept_bytes(), one_fits ? 2 * each : 0);
  rig_.table.OnClosed(kConnection);
  jobs_.EndSession(greedy.id());
  RunAll();
  EXPECT_EQ(runner_.kept_bytes(), one_fits ? each : 0);
}

TEST_F(JobPreparedTest, AFiringOfABatchIsOverWithItsLastJob) {
  PostBatch batch = Prepared();
  AddJob(batch, std::nullopt, std::nullopt, 128);
  const uint32_t number = Post(std::move(batch)).prepared_batch;
  Word(number) = 2;
  EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(Over(number), 0u);
  EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(Over(number), 1u);
  EXPECT_TRUE(runner_.Poll());
  EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(Over(number), 2u);
}

TEST_F(JobPreparedTest, SessionsTakeTurns) {
  const uint32_t greedy = Post(Prepared()).prepared_batch;
  Session& modest = *rig_.Open(kConnection + 1, kBob);
  const ArenaId own = rig_.RegisterGood(kConnection + 1, 4096);
  PostBatch batch;
  batch.prepare = true;
  AddRun(batch, Fingerprint(), {{"x", At(own, 0)}, {"y", At(own, 64)}});
  const uint32_t number = jobs_.Post(modest, std::move(batch)).prepared_batch;
  RunAll();
  Word(greedy) = 100;
  Pages(modest).prepared_defined[number].value = 3;
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(Over(greedy), 3u);
  EXPECT_EQ(Pages(modest).prepared_over[number].value, 3u);
}

TEST_F(JobPreparedTest, FiresWhatItIsJoinedTo) {
  const uint32_t in = Transfer(Side::kReceive), out = Transfer(Side::kSend);
  const PostReply reply = Post(Prepared(in, out));
  const uint32_t number = reply.prepared_batch;
  EXPECT_EQ(Word(in), 1u) << "nothing of the job needs its bytes yet";
  EXPECT_EQ(Word(out), 0u);
  Word(number) = 9;  // ahead
  EXPECT_FALSE(runner_.Poll());
  EXPECT_THAT(jobs_.Find(IdOf(reply))->waits_for, HasSubstr("joined to, for firing 1"));
  Words(in).Over(1, 1);
  EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(Word(in), 2u);
  EXPECT_EQ(Word(out), 1u);
  Words(in).Over(2, 1);
  EXPECT_FALSE(runner_.Poll()) << "what it would write is still being sent";
  Words(out).Over(1, 1);
  EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(Word(out), 2u);
  EXPECT_EQ(Word(in), 3u);
  EXPECT_EQ(Over(number), 2u);
}

TEST_F(JobPreparedTest, EndsWithATransferAndTakesTheOthersAlong) {
  const uint32_t in = Transfer(Side::kReceive), out = Transfer(Side::kSend);
  PostBatch batch = Prepared(in, out);
  AddJob(batch, std::nullopt, std::nullopt, 128);
  const PostReply reply = Post(std::move(batch));
  session_.prepared().Find(in)->released = {7, 8};
  EndTransfer(in, Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, "gone"));
  EXPECT_THAT(session_.TakeReleased(), IsEmpty()) << "the job may still look at its words";
  EXPECT_EQ(poisoned_.size(), 1u);
  EXPECT_THAT(poisoned_[session_.prepared().Find(out)->first], Is("ABORTED/POISONED", "gone"));
  RunAll();
  EXPECT_EQ(heard_, 0);
  EXPECT_THAT(Status(IdOf(reply)), HasSubstr("ABORTED/POISONED prepared transfer 1"));
  EXPECT_THAT(Status(IdOf(reply, 1)),
              HasSubstr("ABORTED/POISONED its prepared batch has ended with job 3"));
  EXPECT_EQ(Over(reply.prepared_batch), FERRY_PREPARED_ENDED);
  EXPECT_EQ(jobs_.in_flight(), 0u);
  EXPECT_EQ(session_.prepared().Find(in), nullptr) << "now it is forgotten";
  EndTransfer(out, poisoned_.begin()->second);
  EXPECT_EQ(session_.use().transfers_in_flight, 0u);
}

TEST_F(JobPreparedTest, AFiringWithoutMemoryEndsItAndPoisonsItsSends) {
  const uint32_t out = Transfer(Side::kSend);
  PostBatch batch = Prepared(std::nullopt, out);
  batch.jobs[0].fingerprint = Fingerprint(
      "program 1\nbuffer @x read 64\nbuffer @y write 64\n%x = input @x : f32[16]\n"
      "%s = sine %x\n%w = broadcast_in_dim %s dimensions=[0] : f32[16,4194304]\n"
      "%t = transpose %w permutation=[1,0]\n%u = cumulative_sum %t dimension=0\n"
      "%v = slice %u start=[0,0] limit=[1,16]\n%r = reshape %v : f32[16]\nstore @y, %r\n");
  const PostReply reply = Post(std::move(batch));
  ASSERT_GT(jobs_.Find(IdOf(reply))->scratch, uint64_t{256} << 20);
  rlimit before;
  getrlimit(RLIMIT_AS, &before);
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit little = before;
  little.rlim_cur = pages * 4096 + (64 << 20);
  setrlimit(RLIMIT_AS, &little);
  Word(reply.prepared_batch) = 1;
  EXPECT_TRUE(runner_.Poll());
  setrlimit(RLIMIT_AS, &before);
  EXPECT_FALSE(runner_.Poll()) << "it is not tried again";
  RunAll();
  EXPECT_THAT(Status(IdOf(reply)), HasSubstr("RESOURCE_EXHAUSTED/DEVICE_MEMORY"));
  EXPECT_EQ(poisoned_.size(), 1u);
  EXPECT_EQ(Word(out), 0u);
  EXPECT_EQ(Over(reply.prepared_batch), FERRY_PREPARED_ENDED);
  EXPECT_EQ(Pages(session_).prepared_over[reply.prepared_batch].first_failed, 1u);
}

TEST_F(JobPreparedTest, AFiringWhoseTurnDoesNotComeEndsItByItsDeadline) {
  const uint32_t in = Transfer(Side::kReceive);
  PostBatch batch = Prepared(in);
  batch.deadlines[0] = absl::Seconds(1);
  const PostReply reply = Post(std::move(batch));
  const uint32_t number = reply.prepared_batch;
  const auto pass = [&](absl::Duration time) {
    rig_.control.Advance(time);
    return jobs_.OnTime(rig_.control.Now());
  };
  EXPECT_EQ(pass(absl::ZeroDuration()), rig_.control.Now() + absl::Seconds(1));
  for (int i = 0; i < 10; ++i) pass(absl::Seconds(1));
  Word(number) = 1;  // it waits for a transfer, which may take its time
  for (int i = 0; i < 10; ++i) pass(absl::Seconds(1));
  EXPECT_EQ(jobs_.in_flight(), 1u);
  Words(in).Over(1, 1);
  EXPECT_TRUE(runner_.Poll());
  Words(in).Over(2, 1);
  Word(number) = 2;
  pass(absl::Seconds(1));
  EXPECT_EQ(jobs_.in_flight(), 1u) << "nobody knows for how long it may begin";
  pass(absl::Seconds(1));
  RunAll();
  EXPECT_THAT(Status(IdOf(reply)),
              HasSubstr("DEADLINE_EXCEEDED/NOT_READY firing 2 of prepared job 2"));
  EXPECT_EQ(poisoned_.size(), 1u);
  EXPECT_EQ(pass(absl::Seconds(1)), absl::InfiniteFuture());
}

TEST_F(JobPreparedTest, IsCancelledAndGoesWithItsSession) {
  const PostReply first = Post(Prepared());
  EXPECT_TRUE(
      jobs_.Cancel(IdOf(first), Error(absl::StatusCode::kCancelled, Reason::kCancelled, "enough")));
  EXPECT_EQ(jobs_.Find(IdOf(first))->waits_for, "its end");
  RunAll();
  EXPECT_THAT(Status(IdOf(first)), HasSubstr("enough"));
  EXPECT_FALSE(jobs_.Cancel(IdOf(first), absl::OkStatus()));
  const PostReply second = Post(Prepared());
  EXPECT_EQ(second.prepared_batch, 1u) << "the first was not released";
  const SessionId id = session_.id();
  rig_.table.OnClosed(kConnection);
  jobs_.EndSession(id);
  EXPECT_NE(rig_.table.Find(id), nullptr) << "its memory may be in use";
  RunAll();
  EXPECT_EQ(rig_.table.Find(id), nullptr);
  EXPECT_FALSE(runner_.Watching());
  EXPECT_EQ(heard_, 0);
}

TEST_F(JobPreparedTest, ADrainWaitsForWhatIsFired) {
  const uint32_t in = Transfer(Side::kReceive), out = Transfer(Side::kSend);
  const PostReply reply = Post(Prepared(in, out));
  std::vector<TransferId> idle;
  session_.prepared().ListIdle(idle);
  EXPECT_EQ(idle.size(), 3u) << "with what it is joined to";
  idle.clear();
  Word(reply.prepared_batch) = 1;
  session_.prepared().ListIdle(idle);
  EXPECT_THAT(idle, IsEmpty());
  Words(in).Over(1, 1);
  runner_.Poll();
  session_.prepared().ListIdle(idle);
  EXPECT_THAT(idle, IsEmpty()) << "what it made is being sent";
  Words(out).Over(1, 1);
  session_.prepared().ListIdle(idle);
  EXPECT_EQ(idle.size(), 3u);
  jobs_.CancelAll(Error(absl::StatusCode::kUnavailable, Reason::kDraining, "drained"));
  RunAll();
  EXPECT_THAT(Status(IdOf(reply)), HasSubstr("UNAVAILABLE/DRAINING"));
}

TEST_F(JobPreparedTest, WhatCannotBeJoinedIsListed) {
  const uint32_t in = Transfer(Side::kReceive), out = Transfer(Side::kSend);
  const uint32_t ended = Transfer(Side::kSend);
  EndTransfer(ended, Error(absl::StatusCode::kCancelled, Reason::kCancelled, "over"));
  PostBatch batch = Prepared(out, in);
  AddJob(batch, 77, ended, 128);
  EXPECT_THAT(Fields(jobs_.Post(session_, std::move(batch))),
              ElementsAre("runs[0].bindings[0] INVALID_ARGUMENT/FIELD_INVALID",
                          "runs[0].bindings[1] INVALID_ARGUMENT/FIELD_INVALID",
                          "runs[1].bindings[0] NOT_FOUND/ID_STALE",
                          "runs[1].bindings[1] FAILED_PRECONDITION/FIELD_INVALID"));
  EXPECT_EQ(Word(in), 0u);
  EXPECT_EQ(jobs_.in_flight(), 0u);
  EXPECT_FALSE(session_.prepared().Find(in)->joined);
}

TEST_F(JobPreparedTest, IsJoinedToWhatTouchesAPartOfItsBytesButNotToWhatTouchesNone) {
  const uint32_t out = Transfer(Side::kSend);
  const PostReply refused = jobs_.Post(session_, Prepared(std::nullopt, out, 128));
  EXPECT_THAT(Fields(refused), ElementsAre("runs[0].bindings[1] INVALID_ARGUMENT/RANGE_INVALID"));
  ASSERT_EQ(refused.violations.size(), 1u);
  EXPECT_THAT(std::string(refused.violations[0].status.message()),
              HasSubstr("sends none of the 64 bytes of @y, which are in "));
  EXPECT_THAT(std::string(refused.violations[0].status.message()), HasSubstr(" at offset 128"));
  EXPECT_FALSE(session_.prepared().Find(out)->joined);
  Post(Prepared(std::nullopt, out, 124));
  EXPECT_TRUE(session_.prepared().Find(out)->joined);
}

}  // namespace
}  // namespace ferry::testing
