// SPDX-License-Identifier: Apache-2.0
// What a drain does to a daemon whose parts are played: who is told, and what is ended when.
#include "daemon/drainer.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/daemon/support.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class DrainerTest : public ::testing::Test {
 protected:
  Drain::Caller Start(absl::Duration timeout, bool stops = false) {
    return drainer_.Start(
        timeout, stops, [this](absl::StatusOr<uint64_t> cut) { ends_.push_back(std::move(cut)); });
  }
  // Lets the daemon look after `time`. Returns in how long it wants to look again.
  absl::Duration After(absl::Duration time) {
    control_.Advance(time);
    const absl::Time now = control_.Now();
    const absl::Time next = drainer_.EndWhatCannotEnd(now);
    return std::min(next, drainer_.OnTime(now)) - now;
  }

  ManualExecutor control_;
  size_t in_flight_ = 3;
  uint64_t failed_ = 0;
  uint64_t continued_ = 0;
  std::vector<TransferId> idle_;
  Drainer::Hooks::Unmatched unmatched_;  // what cancel_unmatched answers

  std::vector<std::optional<absl::Time>> until_;
  std::vector<bool> told_;
  std::vector<TransferId> ended_prepared_;
  std::vector<bool> asked_unmatched_;  // each with `any_peer`
  std::vector<absl::Status> cut_off_;
  std::vector<absl::StatusOr<uint64_t>> ends_;
  Drainer drainer_{control_,
                   "node-a",
                   {.in_flight = [this] { return in_flight_; },
                    .failed = [this] { return failed_; },
                    .set_until = [this](std::optional<absl::Time> t) { until_.push_back(t); },
                    .tell = [this](bool draining) { told_.push_back(draining); },
                    .idle_prepared = [this] { return idle_; },
                    .end_prepared =
                        [this](TransferId first, const absl::Status& why) {
                          EXPECT_THAT(why, Is("UNAVAILABLE/DRAINING", "was not being fired"));
                          ended_prepared_.push_back(first);
                        },
                    .continued = [this] { return continued_; },
                    .cancel_unmatched =
                        [this](const absl::Status& why, bool any_peer) {
                          EXPECT_THAT(why, Is("UNAVAILABLE/DRAINING", "other half has not come"));
                          asked_unmatched_.push_back(any_peer);
                          return unmatched_;
                        },
                    .cancel_all = [this](const absl::Status& why) { cut_off_.push_back(why); }}};
};

TEST_F(DrainerTest, ClientsAreToldOnceAndTheDriverOfEachDeadline) {
  EXPECT_EQ(After(absl::Seconds(1)), absl::InfiniteDuration());
  EXPECT_THAT(told_, IsEmpty());
  Start(absl::Seconds(60));
  const Drain::Caller hasty = Start(absl::Seconds(5));
  EXPECT_THAT(told_, ElementsAre(true));
  EXPECT_THAT(until_,
              ElementsAre(control_.Now() + absl::Seconds(60), control_.Now() + absl::Seconds(5)));
  EXPECT_TRUE(drainer_.Leave(hasty));
  EXPECT_FALSE(drainer_.Leave(hasty));
  EXPECT_EQ(until_.back(), control_.Now() + absl::Seconds(60));
  EXPECT_THAT(drainer_.TakeBack(), Is("OK"));
  EXPECT_THAT(told_, ElementsAre(true, false));
  EXPECT_EQ(until_.back(), std::nullopt);
  EXPECT_FALSE(drainer_.on());
  ASSERT_THAT(ends_, SizeIs(1));
  EXPECT_THAT(ends_[0], Is("ABORTED/CANCELLED"));
}

TEST_F(DrainerTest, OneBeforeTheEndIsNotTakenBack) {
  Start(absl::Seconds(60), /*stops=*/true);
  EXPECT_THAT(drainer_.TakeBack(), Is("UNAVAILABLE/DRAINING"));
  EXPECT_THAT(told_, ElementsAre(true));
}

TEST_F(DrainerTest, PreparedBatchesThatNobodyFiresEndAtOnce) {
  idle_ = {TransferId(7)};
  Start(absl::Seconds(60));
  EXPECT_EQ(After(absl::ZeroDuration()), Drainer::kIdleLook);
  EXPECT_THAT(ended_prepared_, ElementsAre(TransferId(7)));
  idle_ = {TransferId(9)};
  After(Drainer::kIdleLook / 2);
  EXPECT_THAT(ended_prepared_, SizeIs(1)) << "not looked at yet";
  After(Drainer::kIdleLook / 2);
  EXPECT_THAT(ended_prepared_, ElementsAre(TransferId(7), TransferId(9)));
}

TEST_F(DrainerTest, WhoseHalfMayStillComeIsAskedAgainLater) {
  unmatched_ = {.asked = 1, .left = 1};
  Start(absl::Seconds(60));
  After(absl::ZeroDuration());
  EXPECT_THAT(asked_unmatched_, ElementsAre(true)) << "each peer may have said offers just now";
  After(Drainer::kPartner / 2);
  EXPECT_THAT(asked_unmatched_, SizeIs(1));
  unmatched_ = {};
  After(Drainer::kPartner / 2);
  EXPECT_THAT(asked_unmatched_, ElementsAre(true, false));
  After(absl::Seconds(1));
  EXPECT_THAT(asked_unmatched_, SizeIs(2)) << "nothing was left";
  continued_ = 1;  // a transfer that continues another one has come
  After(absl::ZeroDuration());
  EXPECT_THAT(asked_unmatched_, SizeIs(2));
  After(Drainer::kPartner);
  EXPECT_THAT(asked_unmatched_, SizeIs(3));
}

TEST_F(DrainerTest, AtTheDeadlineAllEndsAndTheCallerHearsHowMany) {
  Start(absl::Seconds(5));
  After(absl::Seconds(4));
  EXPECT_THAT(cut_off_, IsEmpty());
  After(absl::Seconds(1));
  ASSERT_THAT(cut_off_, SizeIs(1));
  EXPECT_THAT(cut_off_[0], Is("UNAVAILABLE/DRAINING", "its deadline came before this was over"));
  failed_ = 3;
  in_flight_ = 0;
  After(Drain::kFarewell);
  ASSERT_THAT(ends_, SizeIs(1));
  ASSERT_THAT(ends_[0], Is("OK"));
  EXPECT_EQ(*ends_[0], 3u);
}

TEST_F(DrainerTest, WhoIsHurriedCutsOffWhatIsLeft) {
  const Drain::Caller caller = Start(absl::Seconds(60));
  After(absl::Seconds(1));
  drainer_.Hurry(caller);
  EXPECT_EQ(until_.back(), control_.Now());
  After(absl::ZeroDuration());
  EXPECT_THAT(cut_off_, SizeIs(1));
}

}  // namespace
}  // namespace ferry::testing
