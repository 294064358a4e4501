// SPDX-License-Identifier: Apache-2.0
// Runs that are stopped: between steps, trips and parts of steps, none of which costs more than it
// may; and nothing of it shows in the results of those that are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/host/host_program.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_runs.h"

namespace ferry::compute {
namespace {

using testing::Bytes;

struct Outcome {
  absl::Status status;
  std::vector<Bytes> buffers;
  uint64_t asked = 0;
  size_t steps = 0;  // that were over
};

// Stopped when it asks for the time after `allowed`.
Outcome RunFor(uint64_t allowed, const Program& program, HostOptions options) {
  Outcome outcome;
  const absl::StatusOr<HostProgram> made = HostProgram::Make(program, options);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return outcome;
  const std::unique_ptr<std::byte, decltype(&std::free)> scratch(
      static_cast<std::byte*>(std::aligned_alloc(64, made->scratch_bytes() / 64 * 64 + 64)),
      &std::free);
  outcome.buffers = testing::RandomBuffers(program, 1);
  std::vector<absl::Span<std::byte>> spans;
  for (Bytes& buffer : outcome.buffers) spans.push_back(absl::MakeSpan(buffer));
  Workers workers(options.threads);
  std::atomic<uint64_t> asked{0};
  outcome.status = made->RunWhile([&] { return ++asked <= allowed; }, spans,
                                  {scratch.get(), made->scratch_bytes()}, &workers,
                                  [&](size_t) { ++outcome.steps; });
  outcome.asked = asked;
  return outcome;
}

Program Stoppable(const std::string& text) {
  ParsedText parsed = Parse("program 1\n" + text);
  for (const TextProblem& problem : parsed.problems) ADD_FAILURE() << problem.text;
  EXPECT_TRUE(Verify(parsed.program).empty());
  return std::move(parsed.program);
}

constexpr char kStopped[] =
    "buffer @x read 4194304\nbuffer @y write 4194304\n%x = input @x : f32[1048576]\n"
    "%a = abs %x\n%b = sqrt %a\nstore @y, %b\n";
constexpr uint64_t kWorkOfIt = 1048576 * (8 + 1 + 8);  // of it: bytes, flops, a function's worth

TEST(StopTest, ARunThatMayNotBeginWritesNothing) {
  const Program program = Stoppable(kStopped);
  const Outcome outcome = RunFor(0, program, {});
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(outcome.status.message(), "stopped in step 0 of the plan");
  EXPECT_EQ(outcome.asked, 1u);
  EXPECT_EQ(outcome.steps, 0u);
  EXPECT_TRUE(outcome.buffers == testing::RandomBuffers(program, 1));
}

TEST(StopTest, ALargeStepIsStoppedInTheMiddle) {
  const Program program = Stoppable(kStopped);
  const HostOptions options = {.launch_flops = kLaunchShare * kWorkOfIt / 64};
  const Outcome all = RunFor(UINT64_MAX, program, options);
  EXPECT_TRUE(all.status.ok());
  EXPECT_GE(all.asked, 64u);
  EXPECT_LE(all.asked, 70u);
  const Outcome half = RunFor(33, program, options);
  EXPECT_EQ(half.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(half.asked, 34u);  // and not once more
  const Bytes before = testing::RandomBuffers(program, 1)[1];
  const auto quarter = static_cast<int64_t>(before.size() / 4);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + quarter, all.buffers[1].begin()) ==
              false);
  EXPECT_TRUE(std::equal(half.buffers[1].begin(), half.buffers[1].begin() + quarter,
                         all.buffers[1].begin()));
  EXPECT_TRUE(std::equal(before.end() - quarter, before.end(), half.buffers[1].end() - quarter));
}

TEST(StopTest, AllThreadsStop) {
  const Program program = Stoppable(kStopped);
  HostOptions options = {.threads = 3, .launch_flops = kLaunchShare * kWorkOfIt / 64};
  EXPECT_EQ(RunFor(20, program, options).status.code(), absl::StatusCode::kCancelled);
  EXPECT_LE(RunFor(20, program, options).asked, 21u + options.threads);
  EXPECT_TRUE(RunFor(UINT64_MAX, program, options).status.ok());
}

TEST(StopTest, ALongRowIsStoppedInTheMiddle) {
  const Program program = Stoppable(
      "buffer @x read 4194304\nbuffer @y write 4\n%x = input @x : f32[1048576]\n"
      "%s = reduce %x reduction=sum dimensions=[0]\nstore @y, %s\n");
  EXPECT_GE(RunFor(UINT64_MAX, program, {.launch_flops = kLaunchShare << 16}).asked, 64u);
}

TEST(StopTest, ProductsAreStoppedInTheMiddle) {
  for (const std::string type : {"f32", "f64"}) {  // by the library where it makes code, by us
    SCOPED_TRACE(type);
    const Program program = Stoppable(
        absl::StrCat("buffer @y write 524288\n%i = iota dimension=1 : ", type,
                     "[256,256]\n%j = constant splat=1 : ", type,
                     "[256,256]\n%x = add %i, %j\n%b = barrier %x\n",
                     "%p = dot_general %b, %b lhs_contract=[1] rhs_contract=[0]\nstore @y, %p\n"));
    const HostOptions options = {.threads = 2, .launch_flops = uint64_t{1} << 20};
    const Outcome all = RunFor(UINT64_MAX, program, options);
    EXPECT_TRUE(all.status.ok());
    const Outcome first = RunFor(all.asked - 2, program, options);
    EXPECT_EQ(first.status.code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(first.steps, 1u);
    EXPECT_FALSE(first.buffers == all.buffers);
    EXPECT_EQ(first.status.message(), "stopped in step 1 of the plan");
  }
}

TEST(StopTest, ATripIsTheLastOne) {
  const Program program = Stoppable(
      "buffer @x read_write 16 donated\n%x = input @x : f32[4]\n"
      "%r = repeat %x trips=1000000 (%i, %a) \"long\"\n  %b = negate %a\n  yield %b\n"
      "store @x, %r\n");
  const Outcome outcome = RunFor(1000, program, {});
  EXPECT_EQ(outcome.asked, 1001u);
  EXPECT_EQ(outcome.status.message(), "stopped in step 1 of the plan");
}

TEST(StopTest, StepsThatAreOverAreToldAndNoOthers) {
  const Program program = Stoppable(
      "buffer @x read 16\nbuffer @y write 64\n%x = input @x : f32[4]\n%a = negate %x\n"
      "%b = barrier %a\n%c = negate %b\n%d = barrier %c\n%e = negate %d\nstore @y, %e\n");
  const uint64_t asked = RunFor(UINT64_MAX, program, {}).asked;
  for (uint64_t allowed = 0; allowed <= asked; ++allowed) {
    const Outcome outcome = RunFor(allowed, program, {});
    EXPECT_EQ(outcome.status.ok(), allowed == asked);
    EXPECT_EQ(outcome.steps, std::min<uint64_t>(allowed, 3)) << outcome.status;
  }
}

// Launches as small as they get: the same bits.
TEST(StopTest, LaunchesDoNotChangeResults) {
  uint64_t asked = 0;
  for (uint64_t seed = 4000; seed < 4100; ++seed) {
    testing::GeneratorOptions generated{40, 24};
    generated.transfers = false;
    Program program = testing::ProgramGenerator(seed, generated).Make();
    testing::StoreAll(program);
    const Outcome whole = RunFor(UINT64_MAX, program, {});
    const Outcome parts = RunFor(UINT64_MAX, program, {.launch_flops = 1});
    ASSERT_TRUE(parts.status.ok());
    ASSERT_TRUE(whole.buffers == parts.buffers) << seed;
    asked += parts.asked - whole.asked;
  }
  EXPECT_GT(asked, 1000u);
}

}  // namespace
}  // namespace ferry::compute
