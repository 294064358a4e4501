// SPDX-License-Identifier: Apache-2.0
// How sessions share a compute thread by the time that their runs take, and how users wait for
// their shares of it.
#include "tests/daemon/job_time_rig.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(JobTimeTest, SessionsShareByTheTimeThatTheirRunsTakeWhateverWasEstimated) {
  computer_->takes = {{1, 10 * kMs}, {2, kMs}};
  Post(1, 40);
  Post(2, 400);
  queue_.Pump();
  while (Waiting(1) > 0 && Waiting(2) > 0) {
    // Two jobs are at the compute thread at a time, and are charged when they are over.
    EXPECT_LE(absl::AbsDuration(time_[1] - time_[2]), 30 * kMs);
    Turn();
  }
  EXPECT_GT(ran_.size(), 300u);
}

TEST_F(JobTimeTest, ASessionOfLongRunsDoesNotStarveOneOfShortRuns) {
  computer_->takes = {{1, 100 * kMs}, {2, kMs}};
  Post(1, 10);
  queue_.Pump();
  Turn();
  Post(2, 50);
  const size_t before = ran_.size();
  while (Waiting(2) > 0) Turn();
  size_t of_long = 0;
  for (size_t i = before; i < ran_.size(); ++i) of_long += SessionOf(ran_[i]) == SessionId(1);
  EXPECT_LE(of_long, 3u) << "those that were handed before";
}

// While a session's clock is behind another's, its jobs are not handed out and taken back in a
// loop.
TEST_F(JobTimeTest, WhoIsBehindHasItsTurnsAndIsHandedOutOnceForEach) {
  computer_->takes = {{1, kMs / 1000}, {2, 50 * kMs}};
  Post(2, 2);
  queue_.Pump();
  for (int i = 0; i < 40; ++i) Post(1, kMs);
  size_t turns = 0;
  while (Waiting(1) + Waiting(2) > 0) {
    Turn();
    ASSERT_LE(++turns, 2u * 42);
  }
}

// Others of its session would find it put aside, and be handed back and forth for ever.
TEST_F(JobTimeTest, AJobThatWasPutAsideGoesOnBeforeOthersOfItsSession) {
  computer_->puts_aside = {{1, 1}};
  computer_->takes = {{2, 50 * kMs}};  // longer than was estimated: then it is the other's turn
  const TransferId first = Post(1).id, second = Post(1).id;
  queue_.Pump();
  compute_.RunNext();  // the first one is put aside, and handed again behind the second
  control_.RunAll();
  Post(2, 3);
  queue_.Pump();  // it is taken back: others wait
  for (int i = 0; i < 100 && !jobs_.empty(); ++i) {
    compute_.RunNext();
    control_.RunAll();
  }
  EXPECT_THAT(jobs_, IsEmpty());
  EXPECT_LT(std::find(ran_.begin(), ran_.end(), first),
            std::find(ran_.begin(), ran_.end(), second));
}

// As of a GPU, whose runs lag.
class JobsAheadTest : public JobTimeTest {
 protected:
  static constexpr size_t kAhead = 8;
  JobsAheadTest() : JobTimeTest(kAhead) { computer_->lags = true; }
  void EndAll() {
    computer_->EndAll();
    runner_.Poll();
    control_.RunAll();
  }
};

TEST_F(JobsAheadTest, ShortJobsAreQueuedAheadUpToTheBound) {
  Post(1, 20);
  queue_.Pump();
  Turn();
  EXPECT_EQ(computer_->begun(), kAhead);
  while (Waiting(1) > 0) {
    EndAll();
    Turn();
  }
  EXPECT_EQ(ran_.size(), 20u);
}

TEST_F(JobsAheadTest, OfLongJobsNoMoreThanTwoAreUnlessAllFitTheSlice) {
  for (int i = 0; i < 6; ++i) Post(1, 0.6 * JobRunner::kSlice);
  queue_.Pump();
  Turn();
  EXPECT_EQ(computer_->begun(), 2u);
  EndAll();
  Turn();
  EXPECT_EQ(computer_->begun(), 4u);
  for (int i = 0; i < 2; ++i) {
    EndAll();
    Turn();
  }
  EXPECT_EQ(ran_.size(), 6u);
  for (int i = 0; i < 6; ++i) Post(1, 0.3 * JobRunner::kSlice);
  queue_.Pump();
  Turn();
  EXPECT_EQ(computer_->begun(), 6 + 3u);
}

TEST_F(JobsAheadTest, AnotherSessionWaitsForNoMoreThanWhatIsQueued) {
  Post(1, 50);
  queue_.Pump();
  Post(2);
  queue_.Pump();
  while (Waiting(1) + Waiting(2) > 0) {
    Turn();
    EndAll();
  }
  const std::vector<uint32_t> ran = Ran();
  EXPECT_EQ(ran.size(), 51u);
  EXPECT_LE(static_cast<size_t>(std::find(ran.begin(), ran.end(), 2u) - ran.begin()), kAhead + 1);
  std::erase_if(ran_, [](TransferId job) { return SessionOf(job) == SessionId(2); });
  EXPECT_TRUE(std::is_sorted(ran_.begin(), ran_.end(), [](TransferId a, TransferId b) {
    return SequenceOf(a) < SequenceOf(b);
  }));
}

TEST_F(JobTimeTest, AUserOverHisShareWaitsAndLosesNothing) {
  quotas_.SetShare(100 * kMs);
  computer_->takes = {{1, 300 * kMs}, {2, 50 * kMs}};
  const absl::Time begun = control_.Now();
  Post(1);
  queue_.Pump();
  Turn();
  ASSERT_THAT(Ran(), ElementsAre(1));
  Job& held = Post(1);
  Post(2);
  queue_.Pump();
  EXPECT_TRUE(queue_.IsHeld(held));
  EXPECT_EQ(queue_.held(), 1u);
  Turn();
  EXPECT_THAT(Ran(), ElementsAre(1, 2)) << "another user's";
  EXPECT_EQ(queue_.OnTime(control_.Now()), begun + absl::Seconds(2));
  queue_.Pump();
  Turn();
  EXPECT_EQ(ran_.size(), 2u);
  control_.Advance(absl::Seconds(2));
  EXPECT_EQ(queue_.OnTime(control_.Now()), absl::InfiniteFuture());
  queue_.Pump();
  Turn();
  EXPECT_THAT(Ran(), ElementsAre(1, 2, 1));
}

TEST_F(JobTimeTest, WhatIsHeldKeepsItsOrderAndCanBeTakenOut) {
  quotas_.SetShare(kMs);
  computer_->takes = {{1, 10 * kMs}};
  Post(1);
  queue_.Pump();
  Turn();
  std::vector<TransferId> posted = ran_;
  for (int i = 0; i < 3; ++i) posted.push_back(Post(1).id);
  queue_.Pump();
  EXPECT_EQ(queue_.held(), 3u);
  Job& gone = *jobs_.find(posted[2])->second;
  queue_.Remove(gone);
  jobs_.erase(posted[2]);
  posted.erase(posted.begin() + 2);
  quotas_.SetShare(TimeQuotas::kNoLimit);
  queue_.OnTime(control_.Now());
  queue_.Pump();
  Turn();
  EXPECT_EQ(ran_, posted);
}

// Runs that the test hands to the compute thread itself.
class LaggingRunsTest : public JobTimeTest {
 protected:
  struct Handed {
    std::atomic<int64_t> ns{0};
    int told = 0;                    // steps
    std::vector<absl::Status> over;  // one, once it is over
  };
  LaggingRunsTest() { computer_->lags = true; }
  // Of a session and user of this number.
  void Run(uint32_t session, Handed& handed) {
    const std::vector<absl::Span<std::byte>> memory(2);
    runner_.Run({.id = MakeTransferId(SessionId(session), ++sequence_),
                 .program = *program_,
                 .memory = memory,
                 .step_over = [&handed](size_t) { ++handed.told; },
                 .account = {session, &handed.ns, &quotas_.Of(session)}},
                [&handed](const absl::Status& status, uint64_t) { handed.over.push_back(status); });
  }
  Handed first_, second_;
};

TEST_F(LaggingRunsTest, ThoseThatAreFoundToBeOverTogetherShareTheTimeByTheirWork) {
  Run(1, first_);
  Run(2, second_);
  control_.Advance(8 * kMs);
  computer_->EndAll();
  EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(absl::Nanoseconds(first_.ns.load()), 4 * kMs);
  EXPECT_EQ(absl::Nanoseconds(second_.ns.load()), 4 * kMs);
  EXPECT_EQ(runner_.run_time(), 8 * kMs);
  EXPECT_EQ(quotas_.Of(1).taken(), 4 * kMs);
}

// What a step that was not told of sends, nobody would send.
TEST_F(LaggingRunsTest, StepsOfARunThatIsOverBeforeAnybodyLooksAreToldOf) {
  computer_->is_quick = true;
  Run(1, first_);
  EXPECT_EQ(first_.told, 1);
  EXPECT_THAT(first_.over, ElementsAre(Is("OK")));
  EXPECT_FALSE(runner_.Busy());
}

TEST_F(LaggingRunsTest, AnErrorInLookingAtTheStepsOfSuchARunIsItsOwn) {
  computer_->is_quick = true;
  computer_->tells = Error(absl::StatusCode::kInternal, Reason::kInternal, "look: refused");
  Run(1, first_);
  EXPECT_EQ(first_.told, 0);
  EXPECT_THAT(first_.over, ElementsAre(Is("INTERNAL/INTERNAL", "look: refused")));
  EXPECT_FALSE(runner_.Busy());
}

// As one that only posts its receives.
TEST_F(LaggingRunsTest, OneThatHasQueuedNothingIsChargedNothingOfTheTimeOfOthers) {
  computer_->takes = {{2, 3 * kMs}};
  Run(1, first_);
  computer_->begins = false;
  Run(2, second_);
  EXPECT_THAT(second_.over, ElementsAre(Is("OK"))) << "at once";
  EXPECT_THAT(first_.over, IsEmpty());
  EXPECT_EQ(second_.ns, 0);
  EXPECT_EQ(quotas_.Of(2).taken(), absl::ZeroDuration());
  control_.Advance(5 * kMs);
  computer_->EndAll();
  EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(quotas_.Of(1).taken(), 8 * kMs);
}

// It is not known which of them failed.
TEST_F(LaggingRunsTest, AnErrorInLookingAtStepsIsThatOfAllThatAreUnderWay) {
  Run(1, first_);
  Run(2, second_);
  computer_->tells = Error(absl::StatusCode::kInternal, Reason::kInternal, "look: refused");
  while (!runner_.Poll()) EXPECT_THAT(first_.over, IsEmpty());
  EXPECT_EQ(computer_->over(), 2u) << "their memory is used no more";
  EXPECT_THAT(first_.over, ElementsAre(Is("INTERNAL/INTERNAL", "look: refused")));
  EXPECT_THAT(second_.over, ElementsAre(Is("INTERNAL/INTERNAL", "look: refused")));
  EXPECT_FALSE(runner_.Busy());
  computer_->tells = absl::OkStatus();
  Run(1, first_);
  computer_->EndAll();
  EXPECT_TRUE(runner_.Poll());
  EXPECT_EQ(first_.over.size(), 2u);
  EXPECT_THAT(first_.over.back(), Is("OK"));
}

}  // namespace
}  // namespace ferry::testing
