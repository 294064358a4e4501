// SPDX-License-Identifier: Apache-2.0
// Runs that are put aside, in any place where they can be, and gone on with: nothing of it shows in
// their results, and how much of them is done grows.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "compute/host/host_program.h"
#include "compute/program/text.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_runs.h"

namespace ferry::compute {
namespace {

using testing::Bytes;

struct Outcome {
  std::vector<Bytes> buffers;
  size_t asides = 0;
  size_t steps = 0;          // that were over
  std::vector<double> done;  // steps, at each aside
};

// Put aside when `wanted` says so.
Outcome RunAside(const Program& program, size_t threads, std::function<bool()> wanted) {
  Outcome outcome;
  const absl::StatusOr<HostProgram> made = HostProgram::Make(program, threads);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return outcome;
  const std::unique_ptr<std::byte, decltype(&std::free)> scratch(
      static_cast<std::byte*>(std::aligned_alloc(64, made->scratch_bytes() / 64 * 64 + 64)),
      &std::free);
  outcome.buffers = testing::RandomBuffers(program, 1);
  std::vector<absl::Span<std::byte>> spans;
  for (Bytes& buffer : outcome.buffers) spans.push_back(absl::MakeSpan(buffer));
  Workers workers(threads);
  HostProgram::Aside aside;
  aside.wanted = std::move(wanted);
  while (true) {
    const absl::Status status = made->RunSteps(
        0, made->plan().steps.size(), nullptr, spans, {scratch.get(), made->scratch_bytes()},
        &workers, [&](size_t step) { EXPECT_EQ(step, outcome.steps++); }, nullptr, &aside);
    EXPECT_TRUE(status.ok()) << status;
    if (!aside.put) break;
    ++outcome.asides;
    outcome.done.push_back(static_cast<double>(aside.step) + made->DoneOfStep(aside));
  }
  return outcome;
}

TEST(AsideTest, ResultsAreThoseOfOneGo) {
  size_t asides = 0;
  for (uint64_t seed = 5000; seed < 5150; ++seed) {
    testing::GeneratorOptions generated{40, 12};
    generated.transfers = false;
    Program program = testing::ProgramGenerator(seed, generated).Make();
    testing::StoreAll(program);
    const size_t threads = 1 + seed % 2;
    const Outcome whole = RunAside(program, threads, nullptr);
    EXPECT_EQ(whole.asides, 0u);
    bool last = true;  // each time but the first one after it was put aside
    const Outcome parts = RunAside(program, threads, [&] { return last = !last; });
    ASSERT_TRUE(whole.buffers == parts.buffers) << seed;
    EXPECT_EQ(whole.steps, parts.steps) << seed;
    asides += parts.asides;
  }
  EXPECT_GT(asides, 2000u);
}

TEST(AsideTest, ItSaysHowMuchIsDoneWithinRepeatsToo) {
  ParsedText parsed = Parse(
      "program 1\nbuffer @x read_write 16 donated\n%x = input @x : f32[4]\n"
      "%r = repeat %x trips=3 (%i, %a)\n"
      "  %s = repeat %a trips=4 (%j, %b)\n    %c = negate %b\n    yield %c\n"
      "  yield %s\n"
      "store @x, %r\n");
  ASSERT_TRUE(parsed.problems.empty());
  bool last = true;
  const Outcome outcome = RunAside(parsed.program, 1, [&] { return last = !last; });
  EXPECT_GE(outcome.asides, 6u);
  for (size_t i = 0; i < outcome.done.size(); ++i) {
    EXPECT_LE(outcome.done[i], static_cast<double>(outcome.steps));
    if (i > 0) {
      EXPECT_GE(outcome.done[i], outcome.done[i - 1]);
    }
  }
}

}  // namespace
}  // namespace ferry::compute
