// SPDX-License-Identifier: Apache-2.0
// When an offer that found no place may be tried again; who has how many is tested with the engine.
#include "transfer/offer_shares.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

constexpr size_t kMost = 24;
const absl::Time kStart = absl::FromUnixSeconds(1'000'000);
const SessionId kOne(1), kTwo(2);

class OfferSharesTest : public testing::Test {
 protected:
  // As many as the session may have, each to end after `deadline`.
  void Fill(uint32_t uid, SessionId session, absl::Duration deadline) {
    while (shares_.Fits(kMost, uid, session)) shares_.Take(uid, session, kStart + deadline);
  }
  absl::Duration After(uint32_t uid, SessionId session, absl::Time now = kStart) {
    return shares_.RetryAfterFor(now, kMost, uid, session).value_or(absl::ZeroDuration());
  }
  OfferShares shares_;
};

TEST_F(OfferSharesTest, WhereNothingHasEndedItIsTheFirstDeadline) {
  shares_.Take(1000, kOne, kStart + absl::Seconds(90));
  shares_.Take(1000, kOne, kStart + absl::Seconds(50));
  Fill(1000, kOne, absl::Hours(1));
  EXPECT_EQ(After(1000, kOne), absl::Seconds(50));
  EXPECT_EQ(After(1000, kOne, kStart + absl::Seconds(20)), absl::Seconds(30));
}

TEST_F(OfferSharesTest, WhatHasNoEndHasNoTime) {
  Fill(1000, kOne, absl::InfiniteDuration());
  EXPECT_EQ(After(1000, kOne), absl::ZeroDuration());
}

TEST_F(OfferSharesTest, ASessionsOwnEndingsCountForIt) {
  Fill(1000, kOne, absl::Seconds(50));
  Fill(2000, kTwo, absl::Seconds(50));
  for (int i = 0; i < 10; ++i) {
    shares_.Give(kStart, 2000, kTwo);
    shares_.Take(2000, kTwo, kStart + absl::Seconds(50));
  }
  EXPECT_EQ(After(2000, kTwo), absl::Milliseconds(100));
  EXPECT_EQ(After(1000, kOne), absl::Seconds(50));
  // Long ago is not of late.
  EXPECT_EQ(After(2000, kTwo, kStart + absl::Seconds(20)), absl::Seconds(30));
}

TEST_F(OfferSharesTest, ASessionWithoutAnyWaitsForItsUsersOrForAnybodys) {
  Fill(1000, kOne, absl::Seconds(50));
  for (uint32_t session = 2; shares_.Fits(kMost, 1000, SessionId(session)); ++session) {
    Fill(1000, SessionId(session), absl::Seconds(60));
  }
  EXPECT_EQ(After(1000, SessionId(99)), absl::Seconds(50));
  for (uint32_t uid = 2000; shares_.Fits(kMost, uid, SessionId(uid)); ++uid) {
    Fill(uid, SessionId(uid), absl::Seconds(40));
  }
  EXPECT_EQ(After(9000, SessionId(98)), absl::Seconds(40));
  EXPECT_EQ(After(1000, SessionId(99)), absl::Seconds(50));
}

TEST_F(OfferSharesTest, WhoNeedsMorePlacesWaitsForMoreOfItsOwn) {
  Fill(1000, kOne, absl::Seconds(50));
  for (int i = 0; i < 10; ++i) {
    shares_.Give(kStart, 1000, kOne);
    shares_.Take(1000, kOne, kStart + absl::Seconds(50));
  }
  EXPECT_EQ(shares_.RetryAfterFor(kStart, kMost, 1000, kOne, 3), absl::Milliseconds(300));
}

// 100 places: one user alone, with how many sessions ever, has 50; one session of it 25; and a
// second user then a half of the rest.
TEST_F(OfferSharesTest, AUserHasAsManyAsItLeavesAndASessionHalfOfThat) {
  const auto fill = [&](uint32_t uid, SessionId session) {
    while (shares_.Fits(100, uid, session)) shares_.Take(uid, session, absl::InfiniteFuture());
  };
  fill(1000, kOne);
  EXPECT_EQ(shares_.OfSession(1000, kOne), 25U);
  for (uint32_t session = 2; session < 20; ++session) fill(1000, SessionId(session));
  EXPECT_EQ(shares_.OfUser(1000), 50U);
  fill(2000, kTwo);
  EXPECT_EQ(shares_.OfSession(2000, kTwo), 13U);  // of 50, rounded up
}

}  // namespace
}  // namespace ferry
