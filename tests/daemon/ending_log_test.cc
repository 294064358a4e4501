// SPDX-License-Identifier: Apache-2.0
// How transfers of a session ended, as far as that is remembered.
#include "daemon/session/ending_log.h"

#include <string>

#include "tests/daemon/support.h"

namespace ferry::testing {
namespace {

const absl::Status kLost = Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, "gone");

TEST(EndingLogTest, EndingsHaveNumbersInTheirOrderAndTheOldestGo) {
  EndingLog log(10);
  EXPECT_EQ(log.first(), 1u);
  EXPECT_EQ(log.next(), 1u);
  log.Add({3, Route::kTcp, true});
  log.Add({1, Route::kUnspecified, false});
  EXPECT_EQ(log.first(), 1u);
  EXPECT_EQ(log.next(), 3u);
  EXPECT_EQ(log.at(1).sequence, 3u);
  EXPECT_EQ(log.at(1).route, Route::kTcp);
  EXPECT_EQ(log.at(2).sequence, 1u);
  EXPECT_FALSE(log.at(2).ok);
  for (uint64_t i = 0; i < EndingLog::kEndingsKept - 1; ++i) log.Add({4 + i, Route::kLocal, true});
  EXPECT_EQ(log.first(), 2u);
  EXPECT_EQ(log.at(2).sequence, 1u);
}

TEST(EndingLogTest, TheOldestFailuresAreForgotten) {
  EndingLog log(3);
  log.AddFailures(/*sequence=*/5, /*count=*/2, kLost);
  log.AddFailures(2, 1, kLost);
  EXPECT_EQ(log.forgotten_failures(), 0u);
  ASSERT_TRUE(log.FindFailure(6).has_value());
  EXPECT_THAT(*log.FindFailure(6), Is("UNAVAILABLE/PEER_UNREACHABLE", "gone"));
  EXPECT_FALSE(log.FindFailure(7).has_value());
  log.AddFailures(9, 1, kLost);
  EXPECT_FALSE(log.FindFailure(5).has_value());
  EXPECT_EQ(log.forgotten_failures(), 5u);
  EXPECT_TRUE(log.FindFailure(2).has_value());
}

TEST(EndingLogTest, LongTextsOfFailuresTakeThePlacesOfOthers) {
  EndingLog log(1000);
  const absl::Status wordy = Error(absl::StatusCode::kInternal, Reason::kInternal,
                                   std::string(EndingLog::kFailureBytesKept / 2 + 1, 'x'));
  log.AddFailures(1, 1, wordy);
  EXPECT_TRUE(log.FindFailure(1).has_value());
  log.AddFailures(2, 1, wordy);
  EXPECT_FALSE(log.FindFailure(1).has_value());
  EXPECT_TRUE(log.FindFailure(2).has_value());
}

TEST(EndingLogTest, CountsAreOfAllAlsoOfWhatIsNotRemembered) {
  EndingLog log(10);
  log.Count(true, 3);
  log.Count(false, 2);
  EXPECT_EQ(log.transfers_ok(), 3u);
  EXPECT_EQ(log.transfers_failed(), 2u);
  EXPECT_EQ(log.next(), 1u);
}

TEST(EndingLogTest, WatchersAreToldUntilTheyAreRemoved) {
  EndingLog log(10);
  int one = 0, other = 0;
  const uint64_t id = log.AddWatcher([&] { ++one; });
  log.AddWatcher([&] { ++other; });
  log.NotifyWatchers();
  log.RemoveWatcher(id);
  log.NotifyWatchers();
  EXPECT_EQ(one, 1);
  EXPECT_EQ(other, 2);
}

}  // namespace
}  // namespace ferry::testing
