// SPDX-License-Identifier: Apache-2.0
// One program text on two daemons, which sends and receives by itself: 'scale, quantise to MXFP8,
// send; receive, dequantise, accumulate', with no memory of the client's for what is sent; matched
// and failing like any transfer.
#include <gmock/gmock.h>

#include <array>
#include <cstring>

#include "ferry/program.hpp"
#include "tests/support/await.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kElements = 1024;
constexpr uint64_t kElementBytes = kElements * sizeof(float);

std::string ExchangeText() { return ReadFile(FERRY_SOURCE "/docs/programs/exchange.program"); }

class ExchangeTest : public ClusterTest {
 protected:
  // What an end adds to its sum, as MXFP8 keeps it.
  static float Value(int end, int step, int i) {
    return static_cast<float>((i + step + 3 * end) % 15 - 7);
  }
  void Open(size_t first = 0, size_t second = 1, const std::string& limits = "") {
    ClusterOptions options;
    options.limits = limits;
    Start(options);
    for (const auto& [index, node] : {std::pair(0, first), std::pair(1, second)}) {
      ends_[index] = OpenEnd(node, 2 * kElementBytes, 0, index == 0 ? "left" : "right");
      programs_[index] =
          Must(Program::Compile(ends_[index].session, ends_[index].device, ExchangeText()));
    }
  }
  float* Gradient(int end) { return static_cast<float*>(ends_[end].arena.data()); }
  float* Sum(int end) { return Gradient(end) + kElements; }
  ProgramRun Run(int end, const std::string& suffix = "") {
    ProgramRun run = programs_[end].Run(
        {{"grad", ends_[end].arena.Range(0, kElementBytes)},
         {"sum", ends_[end].arena.Range(kElementBytes, kElementBytes), FERRY_F32}});
    run.peers = {{"other", ends_[1 - end].device}};
    run.key_suffix = suffix;
    return run;
  }
  Batch Post(int end, const ProgramRun& run, const PostOptions& options = {}) {
    return Must(RunPrograms(ends_[end].session, ends_[end].device, {run}, options));
  }
  void ExpectAStep(int step) {
    for (const int end : {0, 1}) {
      for (int i = 0; i < kElements; ++i) Gradient(end)[i] = Value(end, step, i);
      sums_[end].resize(kElements);
      for (int i = 0; i < kElements; ++i) sums_[end][i] += Value(1 - end, step, i) / 8;
    }
    const std::string suffix = "/" + std::to_string(step);
    Batch left = Post(0, Run(0, suffix));
    Batch right = Post(1, Run(1, suffix));
    ASSERT_THAT(left.Wait(kSoon), IsOk());
    ASSERT_THAT(right.Wait(kSoon), IsOk());
    for (const int end : {0, 1}) {
      for (int i = 0; i < kElements; ++i) {
        ASSERT_EQ(Sum(end)[i], sums_[end][i]) << "end " << end << " step " << step << " " << i;
      }
    }
  }
  void TearDown() override {
    programs_ = {};
    ends_ = {};
    ClusterTest::TearDown();
  }

  std::array<End, 2> ends_;
  std::array<Program, 2> programs_;
  std::array<std::vector<float>, 2> sums_;
};

TEST_F(ExchangeTest, BothSendAndReceiveAgainAndAgain) {
  Open();
  EXPECT_EQ(programs_[0].fingerprint(), programs_[1].fingerprint());
  EXPECT_THAT(std::string(programs_[0].plan()), HasSubstr("send"));
  for (int step = 1; step <= 20; ++step) ExpectAStep(step);
}

TEST_F(ExchangeTest, TheBuilderSendsAndReceives) {
  Open();
  const TensorType type{FERRY_S32, {kElements}};
  const std::string key("\"\\\0\xff k", 6);
  ProgramBuilder builder;
  builder.Send(builder.Input("grad", type), "the other", key);
  builder.Store("sum", builder.Receive("the other", key, type));
  std::vector<Batch> jobs;
  for (const int end : {0, 1}) {
    programs_[end] = Must(Program::Compile(ends_[end].session, ends_[end].device, builder.Text()));
    std::memset(Gradient(end), 'a' + end, kElementBytes);
    ProgramRun run = Run(end);
    run.peers = {{"the other", ends_[1 - end].device}};
    run.bindings[1].data_type = FERRY_S32;
    jobs.push_back(Post(end, run));
  }
  for (Batch& job : jobs) ASSERT_THAT(job.Wait(kSoon), IsOk());
  for (const int end : {0, 1}) {
    EXPECT_EQ(std::memcmp(Sum(end), Gradient(1 - end), kElementBytes), 0);
  }
}

TEST_F(ExchangeTest, AJobMaySendToItself) {
  Open(0, 0);  // both are on one device
  for (int i = 0; i < kElements; ++i) Gradient(0)[i] = Value(0, 1, i);
  ProgramRun run = Run(0);
  Batch job = Post(0, run);
  ASSERT_THAT(job.Wait(kSoon), IsOk());
  for (int i = 0; i < kElements; ++i) ASSERT_EQ(Sum(0)[i], Gradient(0)[i] / 8);
}

TEST_F(ExchangeTest, ManyAreUnderWayAtOnce) {
  Open();
  constexpr int kSteps = 50;
  for (const int end : {0, 1}) {
    for (int i = 0; i < kElements; ++i) Gradient(end)[i] = Value(end, 1, i);
  }
  // The left posts all steps of a call each, the right in two calls, backwards.
  std::vector<Batch> jobs;
  for (int step = 0; step < kSteps; ++step) jobs.push_back(Post(0, Run(0, std::to_string(step))));
  for (int step = kSteps; step > 0; --step) {
    jobs.push_back(Post(1, Run(1, std::to_string(step - 1))));
  }
  for (Batch& job : jobs) ASSERT_THAT(job.Wait(kSoon), IsOk());
  for (const int end : {0, 1}) {
    for (int i = 0; i < kElements; ++i) {
      ASSERT_EQ(Sum(end)[i], kSteps * Value(1 - end, 1, i) / 8) << end << " " << i;
    }
  }
}

// There is memory for one job at a time.
TEST_F(ExchangeTest, JobsWaitForMemory) {
  Open(0, 1, "job_memory: 32KiB");
  constexpr int kSteps = 8;
  for (const int end : {0, 1}) {
    for (int i = 0; i < kElements; ++i) Gradient(end)[i] = Value(end, 1, i);
  }
  std::vector<Batch> jobs;
  for (int step = 0; step < kSteps; ++step) jobs.push_back(Post(0, Run(0, std::to_string(step))));
  // What they have, others wait for until their deadline.
  ProgramRun late = Run(0, "late");
  late.deadline = std::chrono::milliseconds(50);
  PostOptions apart;
  apart.over_timeline = 1;
  EXPECT_THAT(Post(0, late, apart).Wait(kSoon),
              Is("RESOURCE_EXHAUSTED/DEVICE_MEMORY",
                 ::testing::AllOf(HasSubstr("it waited for its memory"), HasSubstr("(left)"))));
  for (int step = 0; step < kSteps; ++step) jobs.push_back(Post(1, Run(1, std::to_string(step))));
  for (Batch& job : jobs) ASSERT_THAT(job.Wait(kSoon), IsOk());
  for (const int end : {0, 1}) {
    for (int i = 0; i < kElements; ++i) {
      ASSERT_EQ(Sum(end)[i], kSteps * Value(1 - end, 1, i) / 8) << end << " " << i;
    }
  }
}

TEST_F(ExchangeTest, TheOtherEndMayBeNoProgram) {
  Open();
  for (int i = 0; i < kElements; ++i) Gradient(0)[i] = 8.0f;
  const Arena wire = Must(ends_[1].session.CreateArena(ends_[1].device, 4096));
  std::memset(wire.data(), 0, 4096);
  const uint64_t device = ends_[0].device;
  // Half a block's scale: 2^1, of elements that are 1.
  auto* const bytes = static_cast<unsigned char*>(wire.data());
  std::memset(bytes + 2048, 0x38, kElements);
  std::memset(bytes + 3072, 128, kElements / 32);
  Batch receives = Must(ends_[1].session.Receive(
      ends_[1].device, {Transfer(device, "elements", {wire.Range(0, kElements)}),
                        Transfer(device, "scales", {wire.Range(1024, kElements / 32)})}));
  Batch sends = Must(ends_[1].session.Send(
      ends_[1].device, {Transfer(device, "elements", {wire.Range(2048, kElements)}),
                        Transfer(device, "scales", {wire.Range(3072, kElements / 32)})}));
  Batch job = Post(0, Run(0));
  ASSERT_THAT(job.Wait(kSoon), IsOk());
  ASSERT_THAT(receives.Wait(kSoon), IsOk());
  ASSERT_THAT(sends.Wait(kSoon), IsOk());
  for (int i = 0; i < kElements; ++i) ASSERT_EQ(Sum(0)[i], 2.0f);
  // What came is 1, as 256 x 2^-8.
  for (int i = 0; i < kElements; ++i) ASSERT_EQ(bytes[i], 0x78);
  for (int i = 0; i < kElements / 32; ++i) ASSERT_EQ(bytes[1024 + i], 127 - 8);
}

TEST_F(ExchangeTest, FerryctlDoesItOverFiles) {
  Start();
  TemporaryDirectory directory;
  std::vector<std::unique_ptr<Process>> running;
  for (const int end : {0, 1}) {
    const std::string name = std::to_string(end);
    std::vector<float> numbers(kElements);
    for (int i = 0; i < kElements; ++i) numbers[i] = Value(end, 1, i);
    WriteFile(directory / ("grad" + name),
              std::string(reinterpret_cast<char*>(numbers.data()), kElementBytes));
    WriteFile(directory / ("sum" + name), std::string(kElementBytes, '\0'));
    SpawnOptions options;
    options.arguments = {FerryctlProgram(),
                         "--runtime-dir",
                         node(static_cast<size_t>(end)).runtime_dir(),
                         "program",
                         "run",
                         FERRY_SOURCE "/docs/programs/exchange.program",
                         "--daemon",
                         "--peer",
                         end == 0 ? "other=2" : "other=0",
                         "--key-suffix",
                         "/17",
                         "--bind",
                         "grad=" + (directory / ("grad" + name)),
                         "--bind",
                         "sum=" + (directory / ("sum" + name))};
    running.push_back(std::make_unique<Process>(options));
  }
  for (const auto& process : running) EXPECT_EQ(process->Wait(), 0);
  for (const int end : {0, 1}) {
    const std::string sum = ReadFile(directory / ("sum" + std::to_string(end)));
    ASSERT_EQ(sum.size(), kElementBytes);
    for (int i = 0; i < kElements; ++i) {
      float got;
      std::memcpy(&got, &sum[sizeof(float) * static_cast<size_t>(i)], sizeof(got));
      ASSERT_EQ(got, Value(1 - end, 1, i) / 8) << end << " " << i;
    }
  }
}

TEST_F(ExchangeTest, WhatEndsOneEndEndsBoth) {
  Open();
  for (const bool right_posts : {false, true}) {
    SCOPED_TRACE(right_posts);
    ProgramRun waiting = Run(0);
    waiting.defined_at = Transfer::DefinedAt{0, 1};  // never: it has sent nothing yet
    Batch left = Post(0, waiting);
    Batch right;
    if (right_posts) {
      right = Post(1, Run(1));
      ASSERT_TRUE(Await([&] { return node(1).admin().Count("matched") == 4; }));
    }
    ASSERT_THAT(left.Poison("the optimiser gave up"), IsOk());
    EXPECT_THAT(left.Wait(kSoon), Is("ABORTED/POISONED", HasSubstr("the optimiser gave up")));
    if (right_posts) {
      EXPECT_THAT(right.Wait(kSoon), Is("ABORTED/POISONED", HasSubstr("the optimiser gave up")));
    }
  }
  ExpectAStep(1);
}

TEST_F(ExchangeTest, ItEndsWithTheOthersClientOrDaemon) {
  Open();
  Batch left = Post(0, Run(0));
  ProgramRun waiting = Run(1);
  waiting.defined_at = Transfer::DefinedAt{0, 1};
  Batch right = Post(1, waiting);
  ASSERT_TRUE(Await([&] { return node(1).admin().Count("matched") == 4; }));
  right = Batch();
  programs_[1] = Program();
  ends_[1] = End();  // its client goes
  // Of its transfers what was not sent yet is poisoned, the rest has nobody to go to.
  EXPECT_THAT(left.Wait(kSoon),
              ::testing::AnyOf(Is("ABORTED/POISONED"), Is("ABORTED/PEER_CLIENT_GONE")));
  ends_[1] = OpenEnd(1, 2 * kElementBytes, 0, "right");
  programs_[1] = Must(Program::Compile(ends_[1].session, ends_[1].device, ExchangeText()));
  sums_[0].assign(Sum(0), Sum(0) + kElements);
  ExpectAStep(1);

  Batch again = Post(0, Run(0));
  waiting = Run(1);
  waiting.defined_at = Transfer::DefinedAt{0, 1};
  Batch lost = Post(1, waiting);
  ASSERT_TRUE(Await([&] { return node(1).admin().Count("matched") == 4; }));
  node(1).Kill();
  EXPECT_THAT(again.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_THAT(lost.Wait(kSoon), Is("UNAVAILABLE/DAEMON_LOST"));
  ASSERT_TRUE(node(1).Start());
  ASSERT_THAT(ends_[1].session.WaitAttached(kSoon), IsOk());
  sums_[0].assign(Sum(0), Sum(0) + kElements);
  sums_[1].assign(Sum(1), Sum(1) + kElements);
  ExpectAStep(2);
}

TEST_F(ExchangeTest, OtherDomainsAreNotMetAndRoutesAreInsistedOn) {
  Open();
  PostOptions options;
  options.deadline = std::chrono::milliseconds(500);
  options.domain = "one job";
  Batch left = Post(0, Run(0), options);
  options.domain = "another";
  Batch right = Post(1, Run(1), options);
  EXPECT_THAT(left.Wait(kSoon), Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  EXPECT_THAT(right.Wait(kSoon), Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  options = PostOptions();
  options.domain = "one job";
  options.route = FERRY_ROUTE_TCP;
  left = Post(0, Run(0), options);
  right = Post(1, Run(1), options);
  EXPECT_THAT(left.Wait(kSoon), IsOk());
  EXPECT_THAT(right.Wait(kSoon), IsOk());
  options.route = FERRY_ROUTE_LOCAL;
  EXPECT_THAT(RunPrograms(ends_[0].session, ends_[0].device, {Run(0)}, options),
              Is("FAILED_PRECONDITION/ROUTE_UNAVAILABLE", HasSubstr("runs[0]")));
}

TEST_F(ExchangeTest, NobodyAtTheOtherEndIsADeadline) {
  Open();
  PostOptions options;
  options.deadline = std::chrono::milliseconds(200);
  Batch left = Post(0, Run(0), options);
  EXPECT_THAT(left.Wait(kSoon), Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER", HasSubstr("'elements'")));
  EXPECT_EQ(node(0).admin().Count("waiting"), 0);
  ExpectAStep(1);
}

}  // namespace
}  // namespace ferry::testing
