// SPDX-License-Identifier: Apache-2.0
// Firings of prepared jobs that wait for their user's share of the time, or are put aside.
#include "absl/strings/str_replace.h"
#include "tests/daemon/job_time_rig.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;

// Prepared jobs, of session and user 7 if nothing else is said.
class FiringTimeTest : public JobTimeTest {
 protected:
  using JobTimeTest::JobTimeTest;
  std::unique_ptr<PreparedBatch> Arm(uint32_t number, uint32_t session = 7) {
    std::unique_ptr<PreparedBatch> batch = pages_->Prepare(number, 1);
    std::vector<JobRunner::PreparedJob> jobs;
    jobs.push_back({MakeTransferId(SessionId(session), number),
                    0,
                    program_,
                    std::vector<absl::Span<std::byte>>(program_->buffers.size()),
                    {},
                    nullptr,
                    {session, &ns_, &quotas_.Of(session)}});
    runner_.Arm(*batch, std::move(jobs));
    return batch;
  }

  const std::unique_ptr<TimelinePages> pages_ = *TimelinePages::Create();
  std::atomic<int64_t> ns_{0};
};

TEST_F(FiringTimeTest, AFiringWaitsForItsUsersShareAndTheLaneLooksMeanwhile) {
  quotas_.SetShare(100 * kMs);
  computer_->takes = {{7, 300 * kMs}};
  const std::unique_ptr<PreparedBatch> batch = Arm(3);
  batch->Define(1);
  EXPECT_TRUE(runner_.Poll());
  EXPECT_TRUE(batch->IsOver(1));
  batch->Define(2);
  EXPECT_FALSE(runner_.Poll());
  EXPECT_TRUE(runner_.Restless());
  EXPECT_TRUE(runner_.PrepareToPark());
  control_.Advance(absl::Seconds(2));
  EXPECT_TRUE(runner_.Poll());
  EXPECT_TRUE(batch->IsOver(2));
  EXPECT_FALSE(runner_.Poll());
  EXPECT_FALSE(runner_.Restless());
  EXPECT_EQ(absl::Nanoseconds(ns_.load()), 600 * kMs);
  // Nobody polls once more between a firing and the sleep.
  batch->Define(3);
  EXPECT_TRUE(runner_.PrepareToPark());
  EXPECT_TRUE(runner_.Restless());
  runner_.Disarm(*batch);
}

TEST_F(FiringTimeTest, WhatWasPutAsideGoesOnWhenItsUserHasAShareAgain) {
  quotas_.SetShare(100 * kMs);
  computer_->takes = {{7, 300 * kMs}};
  computer_->puts_aside = {{7, 1}};
  const std::unique_ptr<PreparedBatch> batch = Arm(3);
  batch->Define(1);
  EXPECT_TRUE(runner_.Poll());
  EXPECT_FALSE(runner_.Poll()) << "what it has taken is more than the share";
  EXPECT_FALSE(batch->IsOver(1));
  EXPECT_TRUE(runner_.Restless());
  control_.Advance(absl::Seconds(2));
  EXPECT_TRUE(runner_.Poll());
  EXPECT_TRUE(batch->IsOver(1));
  runner_.Disarm(*batch);
}

// Weights that a firing converts itself, or once for all firings if there is memory for that.
constexpr char kWeights[] =
    "program 1\nbuffer @w read 16384 constant\nbuffer @x read 16384\nbuffer @y write 16384\n"
    "%w = input @w : f32[64,64]\n%s = sqrt %w\n%x = input @x : f32[64,64]\n"
    "%y = dot_general %x, %s lhs_contract=[1] rhs_contract=[0]\nstore @y, %y\n";

constexpr uint64_t kOfOne = 20'000;  // more than one job keeps, less than two
class FiringKeepsTest : public FiringTimeTest {
 protected:
  FiringKeepsTest() : FiringTimeTest(2, kWeights, {kOfOne, kOfOne}) {}
};

// What it has converted is in the scratch that it goes on with.
TEST_F(FiringKeepsTest, AFiringThatWasPutAsideGetsNoOtherMemoryForConstants) {
  ASSERT_GT(program_->from_constants_bytes(), kOfOne / 2);
  ASSERT_LE(program_->from_constants_bytes(), kOfOne);
  const std::unique_ptr<PreparedBatch> first = Arm(3), second = Arm(4);
  first->Define(1);
  EXPECT_TRUE(runner_.Poll());
  computer_->puts_aside = {{7, 1}};
  second->Define(1);
  EXPECT_TRUE(runner_.Poll());
  runner_.Disarm(*first);
  EXPECT_FALSE(second->IsOver(1));
  EXPECT_TRUE(runner_.Poll());
  EXPECT_TRUE(second->IsOver(1));
  EXPECT_THAT(computer_->keeps, ElementsAre(true, false, false));
  runner_.Disarm(*second);
}

class FiringScratchTest : public FiringTimeTest {
 protected:
  static constexpr uint64_t kOfAll = 100'000;  // bytes that runs may have that are put aside
  FiringScratchTest() : FiringTimeTest(2, kWeights, {0, kOfAll}) {}
};

// A run that is put aside takes along all that it was lent.
TEST_F(FiringScratchTest, ARunThatWasLentALargerOnesScratchIsNotPutAsideBeyondTheBound) {
  ASSERT_LE(program_->scratch_bytes(), kOfAll);
  computer_->takes = {{7, 2 * JobRunner::kSlice}};
  computer_->asks = true;
  const std::unique_ptr<PreparedBatch> first = Arm(3), other = Arm(4, 8);
  const auto fire = [&](uint64_t n) {
    first->Define(n);
    other->Define(n);
    EXPECT_TRUE(runner_.Poll());
    const bool aside = !first->IsOver(n) && !other->IsOver(n);
    while (runner_.Poll()) continue;
    EXPECT_TRUE(first->IsOver(n) && other->IsOver(n));
    return aside;
  };
  EXPECT_TRUE(fire(1));
  const std::string large =
      absl::StrReplaceAll(kWeights, {{"16384", "1048576"}, {"64,64", "512,512"}});
  const auto program = CompileProgram(large, {}).program;
  ASSERT_GT(program->scratch_bytes(), kOfAll);
  runner_.Run({.id = MakeTransferId(SessionId(9), 1),
               .program = *program,
               .memory = std::vector<absl::Span<std::byte>>(3)},
              [](const absl::Status& status, uint64_t) { EXPECT_THAT(status, Is("OK")); });
  EXPECT_FALSE(fire(2));
  runner_.Disarm(*first);
  runner_.Disarm(*other);
}

}  // namespace
}  // namespace ferry::testing
