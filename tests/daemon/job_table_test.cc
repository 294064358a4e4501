// SPDX-License-Identifier: Apache-2.0
// Programs compiled, bound, run, refused and ended, on a session table of the test's.
#include "daemon/job/job_table.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "daemon/job/scratch.h"
#include "tests/daemon/job_table_rig.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(JobTableTest, AProgramIsCompiledOnceAndRunByItsFingerprint) {
  Session& session = *rig_.Open(kConnection);
  const ArenaId arena = rig_.RegisterGood(kConnection, 4096);
  for (int i = 0; i < 16; ++i) Floats(arena, 0)[i] = static_cast<float>(i);
  const CompileResult made = Compile(kHalf);
  ASSERT_THAT(made.status, Is("OK"));
  EXPECT_EQ(made.program->fingerprint.size(), 32u);
  EXPECT_THAT(made.program->plan, HasSubstr("kernel"));
  EXPECT_EQ(Compile(kHalf).program, made.program);
  EXPECT_EQ(jobs_.programs().programs().size(), 1u);

  const PostReply reply = jobs_.Post(session, Half(arena));
  ASSERT_THAT(reply.status, Is("OK")) << ::testing::PrintToString(Fields(reply));
  EXPECT_EQ(reply.first_over_value, 1u);
  EXPECT_EQ(session.use().transfers_in_flight, 1u);
  EXPECT_EQ(rig_.table.FindArena(arena)->transfers, 1u);
  RunAll();
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_THAT(ended_[0].status, Is("OK"));
  for (int i = 0; i < 16; ++i) EXPECT_EQ(Floats(arena, 64)[i], 0.5f * static_cast<float>(i));
  EXPECT_EQ(session.use().transfers_in_flight, 0u);
  EXPECT_EQ(rig_.table.FindArena(arena)->transfers, 0u);
  EXPECT_EQ(session.timelines().over_value(0), 1u);
  EXPECT_EQ(jobs_.in_flight(), 0u);
  EXPECT_EQ(jobs_.counts().ok, 1u);
}

TEST_F(JobTableTest, WhatOthersCallTheStepsOfTheSameProgramNobodyIsShown) {
  const auto named = [](const std::string& a, const std::string& b) {
    return "program 1\nbuffer @x read 64\nbuffer @y write 64\nbuffer @z write 64\n"
           "%x = input @x : f32[16]\n" +
           a + b;
  };
  const auto abs = [](const std::string& label) {
    return "%a = abs %x \"" + label + "\"\nstore @y, %a\n";
  };
  const auto sine = [](const std::string& label) {
    return "%b = sine %x \"" + label + "\"\n%c = reverse %b dimensions=[0]\nstore @z, %c\n";
  };
  const CompileResult theirs = Compile(named(abs("secret"), sine("plan")));
  EXPECT_THAT(theirs.plan, HasSubstr("secret"));
  EXPECT_THAT(theirs.program->plan, ::testing::Not(HasSubstr("secret")));
  const CompileResult own = Compile(named(abs("mine"), sine("too")));
  ASSERT_EQ(own.program, theirs.program);
  EXPECT_THAT(own.plan, ::testing::AllOf(HasSubstr("mine"), ::testing::Not(HasSubstr("secret"))));
  // With other numbers of steps than those that are run, it would mislead.
  const CompileResult turned = Compile(named(sine("too"), abs("mine")));
  ASSERT_EQ(turned.program, theirs.program);
  EXPECT_EQ(turned.plan, theirs.program->plan);
}

TEST_F(JobTableTest, APlanIsNotKept) {
  const CompileResult made = Compile(kHalf, false);
  ASSERT_THAT(made.status, Is("OK"));
  EXPECT_THAT(jobs_.programs().programs(), IsEmpty());
}

TEST_F(JobTableTest, EveryProblemOfAProgramIsListed) {
  const CompileResult text = Compile(std::string("program 1\n%a = wrong\n%b = add %c\n"));
  EXPECT_THAT(text.status, Is("INVALID_ARGUMENT/FIELD_INVALID", "2 problems: text:2:"));
  ASSERT_EQ(text.violations.size(), 2u);
  EXPECT_TRUE(absl::StartsWith(text.violations[1].field, "text:3:"));

  const CompileResult rules =
      Compile(std::string("program 1\nbuffer @x read 64\n%x = input @x : f32[16]\n"
                          "%a = add %x, %x : f32[8]\nstore @x, %a\n"));
  EXPECT_THAT(rules.status, Is("INVALID_ARGUMENT/FIELD_INVALID"));
  ASSERT_EQ(rules.violations.size(), 2u);
  EXPECT_EQ(rules.violations[0].field, "text:4");
  EXPECT_EQ(rules.violations[1].field, "text:5");

  compute::Program graph;
  graph.buffers.push_back({"x", compute::Access::kRead, 64, false});
  compute::Node node;
  node.op = compute::Op::kInput;
  node.buffers = {0};
  graph.Append(node, {{compute::DType::kF32, {17}}});
  const CompileResult proto = Compile(graph);
  ASSERT_EQ(proto.violations.size(), 1u);
  EXPECT_EQ(proto.violations[0].field, "program.nodes[0]");
  EXPECT_EQ(jobs_.counts().refused_programs, 3u);
}

TEST_F(JobTableTest, UnknownDevicesAreRefused) {
  CompileResult made;
  jobs_.Compile(GlobalDeviceId(9), std::string(kHalf), true,
                [&](CompileResult result) { made = std::move(result); });
  EXPECT_THAT(made.status, Is("INVALID_ARGUMENT/DEVICE_UNKNOWN"));

  // The same of a run, though the program and what is bound to it are known.
  Session& session = *rig_.Open(kConnection);
  const ArenaId arena = rig_.RegisterGood(kConnection, 4096);
  ASSERT_THAT(Compile(kHalf).status, Is("OK"));
  PostBatch batch = Half(arena);
  batch.device = GlobalDeviceId(9);
  const PostReply reply = jobs_.Post(session, std::move(batch));
  EXPECT_THAT(reply.status, Is("INVALID_ARGUMENT/DEVICE_UNKNOWN"));
  ASSERT_EQ(reply.violations.size(), 1u);
  EXPECT_EQ(reply.violations[0].field, "device_id");
  EXPECT_EQ(session.use().transfers_in_flight, 0u);
}

TEST_F(JobTableTest, TooManyCompilationsAreRefusedForAWhile) {
  std::vector<absl::Status> answers;
  for (size_t i = 0; i <= JobTable::kMostCompiling; ++i) {
    jobs_.Compile(GlobalDeviceId(1), std::string(kHalf), true,
                  [&](CompileResult result) { answers.push_back(result.status); });
  }
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_THAT(answers[0], Is("RESOURCE_EXHAUSTED/QUEUE_FULL"));
  EXPECT_GT(RetryAfterOf(answers[0]), absl::ZeroDuration());
  compiler_.RunAll();
  rig_.control.RunAll();
  EXPECT_EQ(answers.size(), JobTable::kMostCompiling + 1);
  EXPECT_THAT(Compile(kHalf).status, Is("OK"));
}

TEST_F(JobTableTest, EveryBadBindingIsListed) {
  Session& session = *rig_.Open(kConnection);
  const ArenaId arena = rig_.RegisterGood(kConnection, 4096);
  rig_.Open(kConnection + 1, kBob);
  const ArenaId foreign = rig_.RegisterGood(kConnection + 1, 4096);
  const std::string program = Fingerprint();
  const auto post = [&](std::string fingerprint, const std::vector<Bound>& bound) {
    PostBatch batch;
    AddRun(batch, std::move(fingerprint), bound);
    const PostReply reply = jobs_.Post(session, std::move(batch));
    EXPECT_FALSE(reply.status.ok());
    return Fields(reply);
  };
  EXPECT_THAT(post(program, {{"x", At(arena, 0)}}),
              ElementsAre("runs[0].bindings INVALID_ARGUMENT/FIELD_INVALID"));
  EXPECT_THAT(post(program, {{"x", At(arena, 0)}, {"z", At(arena, 64)}, {"x", At(arena, 128)}}),
              ElementsAre("runs[0].bindings[1] INVALID_ARGUMENT/FIELD_INVALID",
                          "runs[0].bindings[2] INVALID_ARGUMENT/FIELD_INVALID",
                          "runs[0].bindings INVALID_ARGUMENT/FIELD_INVALID"));
  EXPECT_THAT(post(program, {{"x", At(arena, 0, 60)}, {"y", At(arena, 64, 68)}}),
              ElementsAre("runs[0].bindings[0] INVALID_ARGUMENT/RANGE_INVALID",
                          "runs[0].bindings[1] INVALID_ARGUMENT/RANGE_INVALID"));
  EXPECT_THAT(post(program, {{"x", At(arena, 0), compute::DType::kF32},
                             {"y", At(arena, 64), compute::DType::kI32}}),
              ElementsAre("runs[0].bindings[1] INVALID_ARGUMENT/FIELD_INVALID"));
  EXPECT_THAT(post(program, {{"x", At(arena, 4090)}, {"y", At(arena, 64)}}),
              ElementsAre("runs[0].bindings[0] INVALID_ARGUMENT/RANGE_INVALID"));
  EXPECT_THAT(post(program, {{"x", At(foreign, 0)}, {"y", At(arena, 64)}}),
              ElementsAre("runs[0].bindings[0] NOT_FOUND/ARENA_NOT_FOUND"));
  EXPECT_THAT(post(std::string(32, 'f'), {{"x", At(arena, 0)}, {"y", At(arena, 64)}}),
              ElementsAre("runs[0].fingerprint NOT_FOUND/ID_STALE"));
  EXPECT_EQ(jobs_.in_flight(), 0u);
  EXPECT_EQ(session.use().transfers_in_flight, 0u);
}

TEST_F(JobTableTest, WhatOneWritesNobodyElseOfTheBatchTouches) {
  Session& session = *rig_.Open(kConnection);
  const ArenaId arena = rig_.RegisterGood(kConnection, 4096);
  const std::string program = Fingerprint();
  PostBatch batch;
  AddRun(batch, program, {{"x", At(arena, 0)}, {"y", At(arena, 63)}});
  EXPECT_THAT(Fields(jobs_.Post(session, std::move(batch))),
              ElementsAre("runs[0].bindings[1] INVALID_ARGUMENT/RANGE_OVERLAP"));
  batch = {};
  AddRun(batch, program, {{"x", At(arena, 0)}, {"y", At(arena, 128)}});
  AddRun(batch, program, {{"x", At(arena, 191)}, {"y", At(arena, 256)}});
  AddRun(batch, program, {{"x", At(arena, 0)}, {"y", At(arena, 300)}});
  EXPECT_THAT(Fields(jobs_.Post(session, std::move(batch))),
              ElementsAre("runs[1].bindings[0] INVALID_ARGUMENT/RANGE_OVERLAP",
                          "runs[2].bindings[1] INVALID_ARGUMENT/RANGE_OVERLAP"));
  batch = {};  // what is only read may be shared
  AddRun(batch, program, {{"x", At(arena, 0)}, {"y", At(arena, 128)}});
  AddRun(batch, program, {{"x", At(arena, 32)}, {"y", At(arena, 192)}});
  EXPECT_THAT(jobs_.Post(session, std::move(batch)).status, Is("OK"));
  RunAll();
  const std::string donated = Fingerprint(
      "program 1\nbuffer @x read 64 donated\nbuffer @y write 64\n"
      "%x = input @x : f32[16]\nstore @y, %x\n");
  batch = {};  // but not what may be destroyed
  AddRun(batch, donated, {{"x", At(arena, 0)}, {"y", At(arena, 128)}});
  AddRun(batch, donated, {{"x", At(arena, 0)}, {"y", At(arena, 192)}});
  EXPECT_THAT(Fields(jobs_.Post(session, std::move(batch))),
              ElementsAre("runs[1].bindings[0] INVALID_ARGUMENT/RANGE_OVERLAP"));
}

TEST_F(JobTableTest, AJobWhoseTurnDoesNotComeEndsByItsDeadline) {
  Session& session = *rig_.Open(kConnection);
  const ArenaId arena = rig_.RegisterGood(kConnection, 4096);
  PostBatch first = Half(arena);
  PostBatch second = Half(arena, 0, 128);
  PostBatch third = Half(arena, 0, 192);
  third.deadlines[0] = absl::Seconds(1);
  jobs_.Post(session, std::move(first));
  jobs_.Post(session, std::move(second));
  const PostReply late = jobs_.Post(session, std::move(third));
  const TransferId id = MakeTransferId(session.id(), late.first_transfer_id);
  EXPECT_STREQ(jobs_.Find(id)->state, "ready");
  EXPECT_EQ(jobs_.OnTime(rig_.control.Now()), rig_.control.Now() + absl::Seconds(1));
  rig_.control.Advance(absl::Seconds(1));
  jobs_.OnTime(rig_.control.Now());
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_THAT(ended_[0].status, Is("DEADLINE_EXCEEDED/NOT_READY", "its turn"));
  EXPECT_EQ(jobs_.Find(id), std::nullopt);
  RunAll();
  ASSERT_EQ(ended_.size(), 3u);
  EXPECT_THAT(ended_[1].status, Is("OK"));
  EXPECT_THAT(ended_[2].status, Is("OK"));
}

TEST_F(JobTableTest, CancelEndsWhatWaits) {
  Session& session = *rig_.Open(kConnection);
  const ArenaId arena = rig_.RegisterGood(kConnection, 4096);
  PostBatch waits = Half(arena);
  waits.specs[0].defined = false;
  waits.specs[0].defined_timeline = 5;
  waits.specs[0].defined_value = 1;
  const PostReply waiting = jobs_.Post(session, std::move(waits));
  const absl::Status why = Error(absl::StatusCode::kCancelled, Reason::kCancelled, "enough");
  const TransferId first = MakeTransferId(session.id(), waiting.first_transfer_id);
  EXPECT_THAT(jobs_.Find(first)->waits_for, HasSubstr("'defined' counter 5"));
  EXPECT_TRUE(jobs_.Cancel(first, why));
  EXPECT_FALSE(jobs_.Cancel(first, why));
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_THAT(ended_[0].status, Is("CANCELLED/CANCELLED", "enough"));
}

TEST_F(JobTableTest, SessionsShareTheComputeThread) {
  Session& greedy = *rig_.Open(kConnection);
  const ArenaId arena = rig_.RegisterGood(kConnection, 4096);
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(jobs_.Post(greedy, Half(arena, 0, 64 + 64 * i)).status, Is("OK"));
  }
  Session& modest = *rig_.Open(kConnection + 1, kBob);
  const ArenaId own = rig_.RegisterGood(kConnection + 1, 4096);
  ASSERT_THAT(jobs_.Post(modest, Half(own)).status, Is("OK"));
  RunAll();
  ASSERT_EQ(ended_.size(), 21u);
  size_t place = 0;
  while (SessionOf(ended_[place].transfer) != modest.id()) ++place;
  EXPECT_LE(place, 4u);
}

TEST_F(JobTableTest, ARequestIdIsCarriedOutOnceAndADrainTakesNone) {
  Session& session = *rig_.Open(kConnection);
  const ArenaId arena = rig_.RegisterGood(kConnection, 4096);
  PostBatch batch = Half(arena);
  batch.request_id = "one";
  batch.request_hash = 7;
  PostBatch again = batch;
  const PostReply first = jobs_.Post(session, std::move(batch));
  EXPECT_EQ(jobs_.Post(session, std::move(again)).first_transfer_id, first.first_transfer_id);
  EXPECT_EQ(jobs_.in_flight(), 1u);
  jobs_.SetDraining(true);
  EXPECT_THAT(jobs_.Post(session, Half(arena)).status, Is("UNAVAILABLE/DRAINING"));
  RunAll();
}

TEST_F(JobTableTest, BeginsWhenTransfersAreOverAndSaysWhatItHasMade) {
  Session& session = *rig_.Open(kConnection);
  const ArenaId arena = rig_.RegisterGood(kConnection, 4096);
  const Ended first = StartTransfer(session, arena);
  const Ended second = StartTransfer(session, arena);
  PostBatch batch = Half(arena);
  batch.jobs[0].after = {SequenceOf(first.transfer), 2};
  batch.jobs[0].defines_timeline = 4;
  batch.jobs[0].defines_value = 9;
  const PostReply reply = jobs_.Post(session, std::move(batch));
  ASSERT_THAT(reply.status, Is("OK"));
  PostBatch next = Half(arena, 64, 128);  // a job comes after a job as after a transfer
  next.jobs[0].after = {reply.first_transfer_id, 1};
  ASSERT_THAT(jobs_.Post(session, std::move(next)).status, Is("OK"));
  EndTransfer(second);
  EndTransfer(first);
  EXPECT_EQ(session.timelines().DefinedValue(4), 0u);
  RunAll();
  EXPECT_EQ(ended_.size(), 4u);
  EXPECT_EQ(jobs_.counts().ok, 2u);
  EXPECT_EQ(session.timelines().DefinedValue(4), 9u);
  PostBatch late = Half(arena);  // after what was over before
  late.jobs[0].after = {SequenceOf(first.transfer), 3};
  ASSERT_THAT(jobs_.Post(session, std::move(late)).status, Is("OK"));
  RunAll();
  EXPECT_EQ(jobs_.counts().ok, 3u);
}

TEST_F(JobTableTest, WhatComesAfterAFailureIsPoisonedWithTheReason) {
  Session& session = *rig_.Open(kConnection);
  const ArenaId arena = rig_.RegisterGood(kConnection, 4096);
  const Ended receive = StartTransfer(session, arena);
  const Ended send = StartTransfer(session, arena);
  PostBatch batch = Half(arena);
  batch.jobs[0].after = {SequenceOf(receive.transfer), 1};
  batch.jobs[0].feeds = {SequenceOf(send.transfer), 1};
  batch.jobs[0].defines_value = 1;
  const PostReply reply = jobs_.Post(session, std::move(batch));
  uint64_t last = reply.first_transfer_id;
  for (int i = 0; i < 90; ++i) {  // a chain
    PostBatch next = Half(arena);
    next.jobs[0].after = {last, 1};
    last = jobs_.Post(session, std::move(next)).first_transfer_id;
  }
  jobs_.Join();
  EXPECT_EQ(jobs_.in_flight(), 91u);
  EndTransfer(receive, Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, "gone"));
  EXPECT_EQ(jobs_.in_flight(), 0u);
  EXPECT_THAT(ended_[1].status, Is("ABORTED/POISONED", "PEER_UNREACHABLE: gone"));
  EXPECT_THAT(ended_.back().status, Is("ABORTED/POISONED"));
  ASSERT_EQ(poisoned_.size(), 1u);
  EXPECT_THAT(poisoned_[send.transfer], Is("ABORTED/POISONED", "gone"));
  EXPECT_EQ(session.timelines().DefinedValue(0), 0u);
  PostBatch late = Half(arena);
  late.jobs[0].after = {SequenceOf(receive.transfer), 1};
  ASSERT_THAT(jobs_.Post(session, std::move(late)).status, Is("OK"));
  jobs_.Join();
  EXPECT_THAT(ended_.back().status, Is("ABORTED/POISONED", "gone"));
  PostBatch unknown = Half(arena);
  unknown.jobs[0].after = {last + 1, 2};
  EXPECT_THAT(Fields(jobs_.Post(session, std::move(unknown))),
              ElementsAre("runs[0].after NOT_FOUND/TRANSFER_NOT_FOUND"));
  EndTransfer(send);
}

class JobThreadsTest : public JobTableTest {
 protected:
  JobThreadsTest() : JobTableTest({.threads = 3}) {}
};

TEST_F(JobThreadsTest, TheThreadsOfAllJobsAreAPartOfWhatIsCompiled) {
  Session& session = *rig_.Open(kConnection);
  const ArenaId arena = rig_.RegisterGood(kConnection, 1 << 20);
  const std::string text =
      "program 1\nbuffer @x read 524288\nbuffer @y write 524288\n%x = input @x : f32[131072]\n"
      "%s = sine %x\n%y = add %s, %x\nstore @y, %y\n";
  const CompileResult made = Compile(text);
  ASSERT_THAT(made.status, Is("OK"));
  EXPECT_TRUE(absl::EndsWith(made.program->plan, "\nthreads 3\n")) << made.program->plan;
  const CompileResult alone = CompileProgram(text, {});
  EXPECT_TRUE(absl::EndsWith(alone.program->plan, "\nthreads 1\n"));
  EXPECT_GT(made.program->scratch_bytes(), alone.program->scratch_bytes());
  constexpr size_t kElements = 131072;
  for (size_t i = 0; i < kElements; ++i) Floats(arena, 0)[i] = static_cast<float>(i) / 1000;
  PostBatch batch;
  AddRun(batch, made.program->fingerprint,
         {{"x", At(arena, 0, 524288)}, {"y", At(arena, 524288, 524288)}});
  ASSERT_THAT(jobs_.Post(session, std::move(batch)).status, Is("OK"));
  RunAll();
  std::vector<float> expected(kElements);
  std::vector<std::byte> scratch(alone.program->scratch_bytes() + 64);
  const size_t skip = (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  const std::vector<absl::Span<std::byte>> memory = {
      {reinterpret_cast<std::byte*>(Floats(arena, 0)), 524288},
      {reinterpret_cast<std::byte*>(expected.data()), 524288}};
  HostComputer computer(1);
  compute::HostProgram::Aside aside;
  const absl::Status ran =
      computer.Do({.program = *alone.program,
                   .memory = memory,
                   .scratch = {scratch.data() + skip, alone.program->scratch_bytes()},
                   .step_over = nullptr,
                   .may_go_on = nullptr,
                   .aside = aside});
  EXPECT_THAT(ran, Is("OK"));
  EXPECT_EQ(std::memcmp(Floats(arena, 524288), expected.data(), 524288), 0)
      << "the results are the same";
}

class JobLimitsTest : public JobTableTest {
 protected:
  JobLimitsTest() : JobTableTest({.bytes = 32768, .flops = 1 << 20}) {}
};

TEST_F(JobLimitsTest, WhatAsksForMoreThanAJobMayHaveIsRefusedWithBothNumbers) {
  EXPECT_THAT(Compile(kHalf).status, Is("OK"));
  const auto repeated = [](const std::string& op) {
    return absl::StrCat("program 1\nbuffer @x read_write 400 donated\n%x = input @x : f32[10,10]\n",
                        "%r = repeat %x trips=10000 (%i, %a)\n  %b = ", op,
                        "\n  yield %b\nstore @x, %r\n");
  };
  EXPECT_THAT(Compile(repeated("add %a, %a")).status,
              Is("RESOURCE_EXHAUSTED/BATCH_TOO_LARGE",
                 "1000000 flops (a function such as tanh counts as 8) and 8001600 bytes"));
  EXPECT_THAT(Compile(repeated("sine %a")).status,
              Is("RESOURCE_EXHAUSTED/BATCH_TOO_LARGE", "asks for 8000000 flops"));
  EXPECT_THAT(Compile(repeated("transpose %a permutation=[1,0]")).status,
              Is("RESOURCE_EXHAUSTED/BATCH_TOO_LARGE", "asks for 0 flops"));
  EXPECT_THAT(Compile(repeated("transpose %a permutation=[1,0]")).status,
              Is("RESOURCE_EXHAUSTED/BATCH_TOO_LARGE",
                 "bytes read and written, a job may have 1048576 of both together"));
  EXPECT_THAT(Compile(std::string("program 1\nbuffer @x read 65536\nbuffer @y write 65536\n"
                                  "%x = input @x : f32[128,128]\n"
                                  "%t = transpose %x permutation=[1,0] \"turned\"\n"
                                  "%u = reverse %t dimensions=[0]\n"
                                  "%v = transpose %u permutation=[1,0]\nstore @y, %v\n"))
                  .status,
              Is("RESOURCE_EXHAUSTED/DEVICE_MEMORY", "32768"));
}

TEST(ProgramCache, ForgetsWhatWasNotUsedForLongest) {
  ProgramCache cache;
  const auto make = [](size_t number, size_t ops) {
    auto program = std::make_shared<CompiledProgram>();
    program->fingerprint = absl::StrCat(number);
    program->ops = ops;
    return program;
  };
  for (size_t i = 0; i < ProgramCache::kMostPrograms; ++i) cache.Add(make(i, 1));
  EXPECT_NE(cache.Find("0", ""), nullptr);  // used
  cache.Add(make(ProgramCache::kMostPrograms, 1));
  EXPECT_NE(cache.Find("0", ""), nullptr);
  EXPECT_EQ(cache.Find("1", ""), nullptr);
  EXPECT_EQ(cache.programs().size(), ProgramCache::kMostPrograms);
  cache.Add(make(5000, ProgramCache::kMostOps - 1));
  EXPECT_EQ(cache.programs().size(), 2u);
  EXPECT_NE(cache.Find("0", ""), nullptr);
}

TEST(Scratch, KeepsWhatIsSmallOnly) {
  HostComputer computer(1);
  Scratch scratch(computer);
  ASSERT_THAT(scratch.Get(0), Is("OK"));
  absl::StatusOr<absl::Span<std::byte>> memory = scratch.Get(Scratch::kKept + 1);
  ASSERT_THAT(memory, Is("OK"));
  memory->back() = std::byte{1};
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 64, 0u);
  scratch.Shrink();
  EXPECT_EQ(scratch.bytes(), 0u);
  ASSERT_THAT(scratch.Get(100), Is("OK"));
  scratch.Shrink();
  EXPECT_EQ(scratch.bytes(), 100u);
  EXPECT_THAT(scratch.Get(uint64_t{1} << 62), Is("RESOURCE_EXHAUSTED/DEVICE_MEMORY"));
  EXPECT_EQ(scratch.bytes(), 0u);
}

}  // namespace
}  // namespace ferry::testing
