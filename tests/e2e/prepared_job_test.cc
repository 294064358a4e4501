// SPDX-License-Identifier: Apache-2.0
// Prepared jobs with real daemons and clients: fired many times by stores alone, joined to prepared
// transfers at both ends, refused, ended.
#include <gmock/gmock.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "ferry/program.hpp"
#include "tests/support/await.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kJobNumbers = 1024;
constexpr uint64_t kJobBytes = kJobNumbers * sizeof(float);

float* Floats(const End& end, uint64_t offset = 0) {
  return reinterpret_cast<float*>(static_cast<char*>(end.arena.data()) + offset);
}

// y = 3 x
std::string Triple() {
  ProgramBuilder builder;
  const TensorType type{FERRY_F32, {kJobNumbers}};
  builder.Store("y", builder.Multiply(builder.Input("x", type), builder.Splat(3, type)));
  return builder.Text();
}

class PreparedJobTest : public ClusterTest {
 protected:
  void Open(const std::string& limits = "") {
    ClusterOptions options;
    options.nodes = 1;
    options.limits = limits;
    Start(options);
    end_ = OpenEnd(0, 4 * kJobBytes);
    triple_ = Compile(end_, Triple());
  }
  static Program Compile(End& end, const std::string& text) {
    return Must(Program::Compile(end.session, end.device, text));
  }
  Range At(uint64_t i) const { return end_.arena.Range(i * kJobBytes, kJobBytes); }
  // From one block of the arena to another.
  ProgramRun Run(uint64_t x, uint64_t y, const Prepared* in = nullptr,
                 const Prepared* out = nullptr) {
    return triple_.Run({{"x", At(x), FERRY_UNSPECIFIED, in}, {"y", At(y), FERRY_UNSPECIFIED, out}});
  }
  // One that takes a while: `trips` times through all of x.
  std::string Long(int trips) {
    return absl::StrCat("program 1\nbuffer @x read ", kJobBytes, "\nbuffer @y write ", kJobBytes,
                        "\n%x = input @x : f32[1024]\n%r = repeat %x trips=", trips,
                        " (%n, %p)\n%s = sine %p\n%t = add %s, %x\nyield %t\nstore @y, %r\n");
  }
  // As many as take about a tenth of a second here.
  ProgramRun RunLong(uint64_t x, uint64_t y, int trips = 20'000) {
    long_ = Compile(end_, Long(trips));
    return long_.Run({{"x", At(x)}, {"y", At(y)}});
  }
  void TearDown() override {
    triple_ = Program();
    long_ = Program();
    end_ = End();
    ClusterTest::TearDown();
  }

  End end_;
  Program triple_, long_;
};

TEST_F(PreparedJobTest, FiresAgainAndAgainWithoutACall) {
  Open();
  Prepared prepared = Must(PreparePrograms(end_.session, end_.device, {Run(0, 1), Run(0, 2)}));
  EXPECT_EQ(prepared.size(), 2u);
  for (uint64_t n = 1; n <= 100; ++n) {
    for (int i = 0; i < kJobNumbers; ++i) Floats(end_)[i] = static_cast<float>(i) + n;
    uint64_t firing = 0;
    ASSERT_THAT(prepared.Fire(&firing), IsOk());
    EXPECT_EQ(firing, n);
    ASSERT_THAT(prepared.Wait(kSoon), IsOk());
    for (int i = 0; i < kJobNumbers; ++i) {
      ASSERT_EQ(Floats(end_, kJobBytes)[i], 3 * (static_cast<float>(i) + n)) << n;
      ASSERT_EQ(Floats(end_, 2 * kJobBytes)[i], 3 * (static_cast<float>(i) + n)) << n;
    }
  }
  EXPECT_EQ(prepared.over(), 100u);
  EXPECT_THAT(prepared.Health(), IsOk());
  ASSERT_THAT(prepared.Release(), IsOk());
  EXPECT_THAT(end_.arena.Release(), IsOk());
}

TEST_F(PreparedJobTest, OneStoreAStepReceivesComputesAndSends) {
  Open();
  End from = OpenEnd(0, kJobBytes, 1, "from");
  End to = OpenEnd(0, kJobBytes, 1, "to");
  Prepared sent = Must(from.session.PrepareSend(
      from.device, {Transfer(end_.device, "in", {from.arena.Range(0, kJobBytes)})}));
  Prepared taken = Must(to.session.PrepareReceive(
      to.device, {Transfer(end_.device, "out", {to.arena.Range(0, kJobBytes)})}));
  Prepared in =
      Must(end_.session.PrepareReceive(end_.device, {Transfer(from.device, "in", {At(0)})}));
  Prepared out = Must(end_.session.PrepareSend(end_.device, {Transfer(to.device, "out", {At(1)})}));
  Prepared job = Must(PreparePrograms(end_.session, end_.device, {Run(0, 1, &in, &out)}));
  EXPECT_THAT(in.Fire(), Is("FAILED_PRECONDITION/FIELD_INVALID", HasSubstr("prepared job")));
  for (uint64_t n = 1; n <= 50; ++n) {
    for (int i = 0; i < kJobNumbers; ++i) Floats(from)[i] = static_cast<float>(i) - n;
    ASSERT_THAT(sent.Fire(), IsOk());
    ASSERT_THAT(taken.Fire(), IsOk());
    ASSERT_THAT(job.Fire(), IsOk());
    EXPECT_THAT(taken.Wait(kSoon), IsOk());
    ASSERT_THAT(job.Wait(kSoon), IsOk());
    ASSERT_THAT(out.Wait(n, kSoon), IsOk());
    ASSERT_THAT(sent.Wait(kSoon), IsOk());  // its word is another one: it may be the last to know
    for (int i = 0; i < kJobNumbers; ++i) {
      ASSERT_EQ(Floats(to)[i], 3 * (static_cast<float>(i) - n)) << n;
    }
  }
  EXPECT_EQ(in.over(), 50u);
  // Of a job that goes nothing is left: what was fired by it ends, and so do its other ends.
  ASSERT_THAT(job.Release(), IsOk());
  EXPECT_THAT(out.Wait(51, kSoon), Is("ABORTED/POISONED", HasSubstr("released")));
  EXPECT_THAT(in.Wait(51, kSoon), Is("ABORTED/POISONED"));
  EXPECT_THAT(taken.Wait(51, kSoon), Is("ABORTED/POISONED"));
  EXPECT_THAT(sent.Wait(51, kSoon), Is("ABORTED/POISONED"));
  EXPECT_THAT(out.Release(), IsOk());
  EXPECT_THAT(in.Release(), IsOk());
}

TEST_F(PreparedJobTest, ATransferThatEndsTakesItsJobAlong) {
  Open();
  End from = OpenEnd(0, kJobBytes, 1, "from");
  Prepared in =
      Must(end_.session.PrepareReceive(end_.device, {Transfer(from.device, "in", {At(0)})}));
  Prepared job = Must(PreparePrograms(end_.session, end_.device, {Run(0, 1, &in), Run(2, 3)}));
  ASSERT_THAT(job.Fire(), IsOk());  // waits for what is never sent
  EXPECT_THAT(job.Fire(), Is("FAILED_PRECONDITION/FIELD_INVALID", HasSubstr("not over")));
  {
    Prepared sent = Must(from.session.PrepareSend(
        from.device, {Transfer(end_.device, "in", {from.arena.Range(0, kJobBytes)})}));
    ASSERT_TRUE(Await([&] { return node(0).admin().Count("armed") == 2; }));
  }
  EXPECT_THAT(job.Wait(kSoon), Is("ABORTED/POISONED", HasSubstr("CANCELLED")));
  EXPECT_EQ(job.over(), 0u);
  EXPECT_THAT(job.Fire(), Is("ABORTED/POISONED"));
  ASSERT_THAT(in.Release(), IsOk());
  ASSERT_THAT(job.Release(), IsOk());
  EXPECT_THAT(end_.arena.Release(), IsOk());
}

TEST_F(PreparedJobTest, AFiringThatRunsEndsBeforeItsNextLaunchWithItsReleaseOrItsSession) {
  Open();
  Prepared job = Must(PreparePrograms(end_.session, end_.device, {RunLong(0, 1, 1'000'000)}));
  Floats(end_)[0] = 1;
  ASSERT_THAT(job.Fire(), IsOk());
  ASSERT_TRUE(Await([&] { return node(0).admin().Dump().find(" running ") != std::string::npos; }));
  ASSERT_THAT(job.Release(), IsOk());
  EXPECT_EQ(Floats(end_, kJobBytes)[0], 0) << "it was stopped long before its last step";
  EXPECT_THAT(end_.arena.Release(), IsOk());

  End other = OpenEnd(0, 4 * kJobBytes, 0, "other");
  const Program program = Compile(other, Long(20'000));
  Prepared dying =
      Must(PreparePrograms(other.session, other.device,
                           {program.Run({{"x", other.arena.Range(0, kJobBytes)},
                                         {"y", other.arena.Range(kJobBytes, kJobBytes)}})}));
  ASSERT_THAT(dying.Fire(), IsOk());
  ASSERT_TRUE(Await([&] { return node(0).admin().Dump().find(" running ") != std::string::npos; }));
  other.session.Close();
  ASSERT_TRUE(Await([&] { return node(0).admin().Dump().find("jobs 0\n") != std::string::npos; }));
}

TEST_F(PreparedJobTest, WhatMeansNothingIsRefusedAndListed) {
  Open();
  const auto prepare = [&](std::vector<ProgramRun> runs) {
    return PreparePrograms(end_.session, end_.device, runs);
  };
  ProgramRun defined = Run(0, 1);
  defined.defined_at = Transfer::DefinedAt{0, 1};
  EXPECT_THAT(prepare({defined}), Is("INVALID_ARGUMENT/FIELD_INVALID", HasSubstr("defined_at")));
  EXPECT_THAT(prepare({Run(0, 1), Run(0, 1)}), Is("INVALID_ARGUMENT/RANGE_OVERLAP"));
  EXPECT_THAT(prepare({}), Is("INVALID_ARGUMENT/FIELD_INVALID"));
  Prepared send = Must(end_.session.PrepareSend(end_.device, {Transfer(1, "out", {At(1)})}));
  EXPECT_THAT(prepare({Run(1, 2, &send)}),
              Is("INVALID_ARGUMENT/FIELD_INVALID", HasSubstr("@x is only read")));
  EXPECT_THAT(RunPrograms(end_.session, end_.device, {Run(0, 1, nullptr, &send)}),
              Is("INVALID_ARGUMENT/FIELD_INVALID", HasSubstr("prepared jobs")));
  EXPECT_THAT(prepare({Run(0, 1, nullptr, &send), Run(0, 2, nullptr, &send)}),
              Is("INVALID_ARGUMENT/FIELD_INVALID", HasSubstr("runs[0] already")));
  Prepared job = Must(prepare({Run(0, 1, nullptr, &send)}));
  EXPECT_THAT(prepare({Run(0, 2, nullptr, &send)}),
              Is("FAILED_PRECONDITION/FIELD_INVALID", HasSubstr("another job")));
  EXPECT_THAT(send.Fire(), Is("FAILED_PRECONDITION/FIELD_INVALID")) << "it still is the job's";
  EXPECT_THAT(prepare({Run(0, 2, nullptr, &job)}),
              Is("INVALID_ARGUMENT/FIELD_INVALID", HasSubstr("of jobs")));
  Prepared fired = Must(end_.session.PrepareSend(end_.device, {Transfer(1, "other", {At(1)})}));
  ASSERT_THAT(fired.Fire(), IsOk());
  EXPECT_THAT(prepare({Run(0, 2, nullptr, &fired)}),
              Is("FAILED_PRECONDITION/FIELD_INVALID", HasSubstr("fired before")));
}

TEST_F(PreparedJobTest, ADaemonThatComesBackIsToldToPrepareThemAgain) {
  Open();
  Prepared send = Must(end_.session.PrepareSend(end_.device, {Transfer(1, "out", {At(1)})}));
  Prepared job = Must(PreparePrograms(end_.session, end_.device, {Run(0, 1, nullptr, &send)}));
  ASSERT_THAT(job.Fire(), IsOk());
  ASSERT_THAT(job.Wait(kSoon), IsOk());
  node(0).Kill();
  EXPECT_THAT(job.Wait(2, kSoon), Is("UNAVAILABLE/DAEMON_LOST"));
  ASSERT_TRUE(node(0).Start());
  ASSERT_THAT(end_.session.WaitAttached(kSoon), IsOk());
  End to = OpenEnd(0, kJobBytes, 1, "to");
  Prepared taken = Must(to.session.PrepareReceive(
      to.device, {Transfer(end_.device, "out", {to.arena.Range(0, kJobBytes)})}));
  for (uint64_t n = 1; n <= 3; ++n) {
    Floats(end_)[5] = static_cast<float>(n);
    uint64_t firing = 0;
    ASSERT_THAT(job.Fire(&firing), IsOk());
    EXPECT_EQ(firing, n) << "they count from 1 at each life";
    ASSERT_THAT(taken.Fire(), IsOk());
    ASSERT_THAT(taken.Wait(kSoon), IsOk());
    EXPECT_EQ(Floats(to)[5], 3 * static_cast<float>(n));
    ASSERT_THAT(job.Wait(kSoon), IsOk());
  }
}

TEST_F(PreparedJobTest, ADrainEndsThemWhenNoFiringIsUnderWay) {
  Open();
  Prepared idle = Must(PreparePrograms(end_.session, end_.device, {Run(0, 1)}));
  Prepared busy = Must(PreparePrograms(end_.session, end_.device, {RunLong(0, 2)}));
  ASSERT_THAT(busy.Fire(), IsOk());
  ASSERT_TRUE(Await([&] { return node(0).admin().Dump().find(" running ") != std::string::npos; }));
  node(0).Signal(SIGTERM);
  EXPECT_THAT(idle.Wait(1, kSoon), Is("UNAVAILABLE/DRAINING"));
  EXPECT_THAT(busy.Wait(1, kSoon), IsOk());
  EXPECT_THAT(busy.Wait(2, kSoon), Is("UNAVAILABLE/DRAINING"));
}

}  // namespace
}  // namespace ferry::testing
