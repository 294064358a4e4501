// SPDX-License-Identifier: Apache-2.0
// When a link is dialled, knocked at or visited.
#include "daemon/peer/redial.h"

#include <algorithm>
#include <cstdint>

#include "tests/daemon/support.h"

namespace ferry::testing {
namespace {

using Step = Redial::Step;

constexpr absl::Time kRedialBegin = absl::FromUnixSeconds(3'600'000);
constexpr absl::Time kNoVisit = absl::InfiniteFuture();

TEST(Redial, WhatIsWantedIsDialledOnce) {
  Redial redial(/*dials=*/true, kNoVisit);
  redial.OpenAt(kRedialBegin);
  EXPECT_EQ(redial.Take(kRedialBegin), Step::kNone) << "nobody wants it";
  EXPECT_TRUE(redial.Want());
  EXPECT_FALSE(redial.Want());
  EXPECT_TRUE(redial.wanted());
  redial.OpenAt(kRedialBegin);
  EXPECT_EQ(redial.NextTime(), kRedialBegin);
  EXPECT_EQ(redial.Take(kRedialBegin), Step::kDial);
  EXPECT_EQ(redial.Take(kRedialBegin), Step::kNone);
  EXPECT_EQ(redial.NextTime(), kNoVisit);
}

TEST(Redial, PausesDoubleUntilTheLinkIsUp) {
  Redial redial(/*dials=*/true, kNoVisit);
  redial.Want();
  absl::Duration pause = Redial::kBackoffMin;
  for (int i = 0; i < 8; ++i) {
    redial.OnLost(kRedialBegin);
    EXPECT_EQ(redial.NextTime(), kRedialBegin + std::min(pause, Redial::kBackoffMax));
    pause *= 2;
  }
  redial.OnUp(/*dialled=*/true);
  redial.OnLost(kRedialBegin);
  EXPECT_EQ(redial.NextTime(), kRedialBegin + Redial::kBackoffMin);
}

TEST(Redial, WhatIsNotWantedIsNotDialledAgain) {
  Redial redial(/*dials=*/true, kNoVisit);
  redial.Want();
  redial.Unwant();
  redial.OnLost(kRedialBegin);
  EXPECT_EQ(redial.Take(kRedialBegin + absl::Hours(1)), Step::kNone);
  redial.OnProven();
  EXPECT_TRUE(redial.wanted()) << "the other daemon will want it again";
}

TEST(Redial, TheLargerNameKnocksAndDialsAfterVainKnocks) {
  Redial redial(/*dials=*/false, kNoVisit);
  redial.Want();
  absl::Time now = kRedialBegin;
  redial.OpenAt(now);
  for (uint64_t knock = 1; knock <= Redial::kVainKnocks; ++knock) {
    ASSERT_EQ(redial.Take(now), Step::kKnock);
    redial.Knock(knock);
    EXPECT_EQ(redial.Take(now + absl::Hours(1)), Step::kNone) << "one at a time";
    EXPECT_FALSE(redial.EndKnock(knock + 1));
    ASSERT_TRUE(redial.EndKnock(knock));
    redial.OnKnockInVain(/*heard=*/true, now);
    now = redial.NextTime();
  }
  EXPECT_EQ(redial.Take(now), Step::kDial);
  redial.OnLost(now);
  EXPECT_EQ(redial.Take(redial.NextTime()), Step::kKnock) << "and then as before";
}

TEST(Redial, KnocksThatFailDoNotCountAsVain) {
  Redial redial(/*dials=*/false, kNoVisit);
  redial.Want();
  absl::Time now = kRedialBegin;
  redial.OpenAt(now);
  for (uint64_t knock = 1; knock <= 2 * Redial::kVainKnocks; ++knock) {
    ASSERT_EQ(redial.Take(now), Step::kKnock);
    redial.Knock(knock);
    ASSERT_TRUE(redial.EndKnock(knock));
    redial.OnKnockInVain(/*heard=*/false, now);
    now = redial.NextTime();
  }
}

TEST(Redial, WhereOnlyOurDialWorkedItIsTriedFirst) {
  Redial redial(/*dials=*/false, kNoVisit);
  redial.OnProven();
  redial.OnUp(/*dialled=*/true);
  redial.OnLost(kRedialBegin);
  EXPECT_EQ(redial.Take(redial.NextTime()), Step::kDial);
  redial.OnUp(/*dialled=*/false);
  redial.OnLost(kRedialBegin);
  EXPECT_EQ(redial.Take(redial.NextTime()), Step::kKnock);
}

TEST(Redial, AKnockDialsAtMostOnceASecond) {
  Redial redial(/*dials=*/true, kNoVisit);
  redial.OnKnocked(kRedialBegin);
  EXPECT_EQ(redial.Take(kRedialBegin), Step::kDial) << "although nobody here wants it";
  redial.OnLost(kRedialBegin);
  redial.OnKnocked(kRedialBegin + Redial::kKnockPause - absl::Nanoseconds(1));
  EXPECT_EQ(redial.Take(kRedialBegin + Redial::kKnockPause), Step::kNone);
  redial.OnKnocked(kRedialBegin + Redial::kKnockPause);
  EXPECT_EQ(redial.Take(kRedialBegin + Redial::kKnockPause), Step::kDial);
  redial.OnProven();
  redial.Unwant();
  redial.OnLost(kRedialBegin + Redial::kKnockPause);
  redial.OnKnocked(kRedialBegin + Redial::kKnockPause);
  EXPECT_EQ(redial.Take(kRedialBegin + Redial::kKnockPause), Step::kDial) << "it was no idle knock";
}

TEST(Redial, VisitsAreForLinksThatNobodyWants) {
  const absl::Time visit_at = kRedialBegin + absl::Seconds(5);
  Redial redial(/*dials=*/false, visit_at);
  EXPECT_EQ(redial.Take(kRedialBegin), Step::kNone);
  EXPECT_EQ(redial.NextTime(), visit_at);
  EXPECT_EQ(redial.Take(visit_at), Step::kVisit);
  redial.OnVisited(visit_at + absl::Seconds(5));
  EXPECT_EQ(redial.Take(visit_at), Step::kNone);
  EXPECT_EQ(redial.NextTime(), visit_at + absl::Seconds(5));
  redial.Want();
  EXPECT_EQ(redial.NextTime(), kNoVisit);
  EXPECT_EQ(redial.Take(visit_at + absl::Hours(1)), Step::kNone);
}

TEST(Redial, WhatFailedAtAnotherAddressDoesNotCount) {
  Redial redial(/*dials=*/false, kNoVisit);
  redial.Want();
  redial.OpenAt(kRedialBegin);
  ASSERT_EQ(redial.Take(kRedialBegin), Step::kKnock);
  redial.Knock(1);
  redial.OnMoved();
  EXPECT_FALSE(redial.EndKnock(1)) << "an answer from there";
  redial.OpenAt(kRedialBegin);
  EXPECT_EQ(redial.Take(kRedialBegin), Step::kKnock);
}

}  // namespace
}  // namespace ferry::testing
