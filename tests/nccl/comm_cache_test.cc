// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/comm_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

class CommCacheTest : public testing::Test {
 protected:
  static Clique CliqueTo(uint64_t other) { return {GlobalDeviceId(0), GlobalDeviceId(other)}; }
  CommCache::Id Open(uint64_t other, uint32_t attempt = 1) {
    CommRow row;
    row.clique = CliqueTo(other);
    row.attempt = attempt;
    row.device = GlobalDeviceId(0);
    return cache_.Open(now_, row);
  }
  CommCache::Id Opened(uint64_t other, uint64_t bytes = 40) {
    const CommCache::Id id = Open(other);
    Later();
    cache_.OnOpened(now_, id, bytes, absl::Milliseconds(60));
    return id;
  }
  void Use(CommCache::Id id) {
    Later();
    cache_.OnLaunch(now_, id, 7);
    cache_.OnOver(now_, id);
  }
  // Of idle ones.
  std::vector<Clique> Evict(absl::Time now) {
    std::vector<Clique> cliques;
    for (const auto& [clique, busy] : cache_.TakeToEvict(now)) {
      EXPECT_FALSE(busy);
      cliques.push_back(clique);
    }
    return cliques;
  }
  void Later() { now_ += absl::Milliseconds(1); }

  CommCache cache_{100, absl::Minutes(10)};
  absl::Time now_ = kStart;
};

TEST_F(CommCacheTest, KeepsTheBooks) {
  const CommCache::Id id = Opened(5);
  Use(id);
  Use(id);
  cache_.OnLaunch(now_, id, 3);
  const CommRow row = cache_.List().at(0);
  EXPECT_EQ(row.state, CommState::kOpen);
  EXPECT_EQ(row.groups, 3u);
  EXPECT_EQ(row.moved, 17u);
  EXPECT_EQ(row.running, 1u);
  EXPECT_EQ(row.bytes, 40u);
  EXPECT_EQ(row.since, kStart);
  EXPECT_EQ(row.last_used, now_);
  EXPECT_EQ(cache_.BytesOf(GlobalDeviceId(0)), 40u);
  EXPECT_EQ(cache_.BytesOf(GlobalDeviceId(1)), 0u);
  cache_.OnOver(now_, id);
  cache_.OnEnding(id, "");
  EXPECT_EQ(cache_.List().at(0).state, CommState::kClosing);
  cache_.OnGone(id);
  EXPECT_THAT(cache_.List(), IsEmpty());
  EXPECT_EQ(cache_.counts().opened, 1u);
  EXPECT_EQ(cache_.counts().closed, 1u);
  EXPECT_EQ(cache_.counts().groups, 3u);
}

// Also if its opener comes back meanwhile. It is not asked to go again, and makes room.
TEST_F(CommCacheTest, WhatIsToBeClosedIsShownSo) {
  const CommCache::Id a = Open(5);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(a));
  cache_.OnClosing(a);
  cache_.OnOpened(now_, a, 40, absl::Milliseconds(60));
  EXPECT_EQ(cache_.List().at(0).state, CommState::kClosing);
  const CommCache::Id b = Opened(6);
  Opened(7);
  EXPECT_THAT(Evict(now_), IsEmpty());
  cache_.OnClosing(b);
  cache_.OnEnding(b, "a link was lost");
  EXPECT_EQ(cache_.List().at(1).state, CommState::kAborting);
  EXPECT_EQ(cache_.counts().aborted, 1u);
}

TEST_F(CommCacheTest, WhatFailedIsShownUntilTheNextAttempt) {
  const CommCache::Id first = Open(5);
  cache_.OnEnding(first, "nobody came");
  EXPECT_EQ(cache_.List().at(0).state, CommState::kAborting);
  cache_.OnGone(first);
  EXPECT_EQ(cache_.List().at(0).state, CommState::kFailed);
  EXPECT_EQ(cache_.List().at(0).error, "nobody came");
  Open(6);
  EXPECT_THAT(cache_.List(), SizeIs(2));
  const CommCache::Id second = Open(5, 2);
  ASSERT_THAT(cache_.List(), SizeIs(2));
  EXPECT_EQ(cache_.List().at(1).attempt, 2u);
  // One that is still being aborted when the next one comes leaves nothing behind.
  cache_.OnEnding(second, "aborted");
  Open(5, 3);
  cache_.OnGone(second);
  EXPECT_THAT(cache_.List(), SizeIs(2));
  EXPECT_EQ(cache_.counts().failed, 2u);
  EXPECT_EQ(cache_.counts().aborted, 0u);
}

TEST_F(CommCacheTest, BeyondItsBytesTheLeastRecentlyUsedIdleOneGoes) {
  const CommCache::Id a = Opened(5), b = Opened(6);
  EXPECT_THAT(Evict(now_), IsEmpty());
  EXPECT_FALSE(cache_.beyond());
  Use(a);
  const CommCache::Id c = Opened(7);
  EXPECT_THAT(Evict(now_), ElementsAre(CliqueTo(6)));
  EXPECT_TRUE(cache_.beyond());
  EXPECT_THAT(Evict(now_), IsEmpty());  // it was asked for
  EXPECT_LE(cache_.NextLook(), now_ + absl::Milliseconds(100));
  EXPECT_THAT(Evict(now_ + absl::Milliseconds(100)), ElementsAre(CliqueTo(6)));
  cache_.OnEnding(b, "");
  cache_.OnGone(b);
  EXPECT_THAT(Evict(now_), IsEmpty());
  EXPECT_FALSE(cache_.beyond());
  EXPECT_EQ(cache_.List().back().clique, CliqueTo(7));
  (void)c;
}

TEST_F(CommCacheTest, OtherBoundsHoldFromTheNextLookOn) {
  Opened(5);
  Opened(6);
  EXPECT_THAT(Evict(now_), IsEmpty());
  cache_.SetBounds(50, absl::Minutes(10));
  EXPECT_THAT(Evict(now_), ElementsAre(CliqueTo(5)));
  cache_.SetBounds(100, absl::Minutes(1));
  EXPECT_THAT(Evict(now_ + absl::Seconds(59)), IsEmpty());
  EXPECT_THAT(Evict(now_ + absl::Minutes(2)), ElementsAre(CliqueTo(5), CliqueTo(6)));
}

TEST_F(CommCacheTest, OneThatIsBeingOpenedCounts) {
  Opened(5);
  Opened(6);
  Open(7);
  EXPECT_THAT(Evict(now_), ElementsAre(CliqueTo(5)));
}

TEST_F(CommCacheTest, WhatHasNoRoomWaitsItsTurn) {
  const CommCache::Id first = Open(4);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(first));  // whatever it takes
  EXPECT_THAT(cache_.TakeToOpen(now_), IsEmpty());
  cache_.OnOpened(now_, first, 40, absl::Milliseconds(60));
  const CommCache::Id a = Open(5), b = Open(6), c = Open(7);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(a));
  EXPECT_EQ(cache_.List().at(2).state, CommState::kWaiting);
  cache_.OnOpened(now_, a, 40, absl::Milliseconds(60));
  EXPECT_THAT(cache_.TakeToOpen(now_), IsEmpty());
  EXPECT_THAT(Evict(now_), ElementsAre(CliqueTo(4)));  // though the others are not used either
  EXPECT_GT(cache_.NextLook(), now_);                  // though `a` was never asked to go
  EXPECT_LE(cache_.NextLook(), now_ + absl::Milliseconds(100));
  cache_.OnEnding(first, "");
  EXPECT_THAT(cache_.TakeToOpen(now_), IsEmpty());  // its memory is not back
  now_ += absl::Milliseconds(200);
  EXPECT_THAT(Evict(now_), IsEmpty());
  EXPECT_GT(cache_.NextLook(), now_);
  cache_.OnGone(first);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(b));
  cache_.OnEnding(b, "it could not be opened");
  cache_.OnGone(b);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(c));
}

TEST_F(CommCacheTest, TheFirstOneOpensAlone) {
  const CommCache::Id first = Open(4), second = Open(5);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(first));
  EXPECT_EQ(cache_.NextLook(), now_ + CommCache::kAlone);
  Later();
  EXPECT_THAT(cache_.TakeToOpen(now_), IsEmpty());
  EXPECT_EQ(cache_.OnOpened(now_, first, 40, absl::Milliseconds(60)), 40u);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(second));
}

TEST_F(CommCacheTest, AFirstOneThatHangsHoldsTheOthersForASecond) {
  const CommCache::Id first = Open(4), second = Open(5), third = Open(6);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(first));
  now_ += CommCache::kAlone;
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(second));
  now_ += CommCache::kAlone;
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(third));
  // Until one was alone there is nothing better than what went beside the others.
  EXPECT_EQ(cache_.OnOpened(now_, second, 80, absl::Milliseconds(60)), 80u);
  EXPECT_EQ(cache_.OnOpened(now_, third, 60, absl::Milliseconds(60)), 60u);
}

TEST_F(CommCacheTest, WhatWaitsForMoreThanTimeIsLookedAtNowAndThen) {
  const CommCache::Id hangs = Open(4), second = Open(5);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(hangs));
  now_ += CommCache::kAlone;
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(second));
  cache_.OnOpened(now_, second, 40, absl::Milliseconds(60));
  Open(6);
  EXPECT_THAT(cache_.TakeToOpen(now_), IsEmpty());  // no room, though nobody is left alone
  EXPECT_THAT(Evict(now_), ElementsAre(CliqueTo(5)));
  EXPECT_GT(cache_.NextLook(), now_);
  // A busy one's turn is looked for when it is over, and not because it is.
  cache_.OnLaunch(now_, second, 1);
  const absl::Time turn = now_ + CommCache::kTurn;
  for (const absl::Duration early : {absl::Milliseconds(450), absl::Milliseconds(1)}) {
    EXPECT_THAT(cache_.TakeToEvict(turn - early), IsEmpty());
    EXPECT_GT(cache_.NextLook(), turn - early);
    EXPECT_LE(cache_.NextLook(), turn);
  }
  EXPECT_THAT(cache_.TakeToEvict(turn), ElementsAre(std::make_pair(CliqueTo(5), true)));
  EXPECT_GT(cache_.NextLook(), turn);
}

TEST_F(CommCacheTest, OneThatOthersDisturbTakesWhatTheLastSureOneTook) {
  const auto taken = [&](CommCache::Id id, uint64_t went) {
    Later();
    return cache_.OnOpened(now_, id, went, absl::Milliseconds(60));
  };
  const CommCache::Id first = Open(4);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(first));
  EXPECT_EQ(taken(first, 20), 20u);
  // Two at a time.
  const CommCache::Id a = Open(5), b = Open(6);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(a, b));
  EXPECT_EQ(taken(a, 40), 20u);
  EXPECT_EQ(taken(b, 0), 20u);
  EXPECT_EQ(cache_.BytesOf(GlobalDeviceId(0)), 60u);
  // One that comes while another goes, and one that goes while another comes.
  cache_.OnEnding(a, "");
  const CommCache::Id c = Open(7);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(c));
  cache_.OnGone(a);
  EXPECT_EQ(taken(c, 0), 20u);
  const CommCache::Id d = Open(8);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(d));
  cache_.OnEnding(b, "aborted");
  cache_.OnGone(b);
  EXPECT_EQ(taken(d, 0), 20u);
  // Of another GPU they are no trouble, and alone it counts again.
  CommRow row;
  row.clique = {GlobalDeviceId(1), GlobalDeviceId(9)};
  row.device = GlobalDeviceId(1);
  const CommCache::Id elsewhere = cache_.Open(now_, row), e = Open(10);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(elsewhere, e));
  EXPECT_EQ(taken(e, 24), 24u);
  EXPECT_EQ(cache_.BytesOf(GlobalDeviceId(0)), 84u);
}

TEST_F(CommCacheTest, WhatClientsTakeOrFreeMeanwhileIsNoCommunicators) {
  const auto taken = [&](uint64_t other, uint64_t went) {
    const CommCache::Id id = Open(other);
    Later();
    return cache_.OnOpened(now_, id, went, absl::Milliseconds(60));
  };
  EXPECT_EQ(taken(4, 20), 20u);
  EXPECT_EQ(taken(5, 6000), 20u);
  EXPECT_EQ(taken(6, 0), 20u);
  EXPECT_EQ(taken(7, 24), 24u);
  EXPECT_EQ(taken(8, 5), 24u);
  EXPECT_EQ(taken(9, 97), 24u);
  EXPECT_EQ(taken(10, 96), 96u);
  // Also the first one may have been wrong: what two say in a row is right.
  EXPECT_EQ(taken(11, 20), 96u);
  EXPECT_EQ(taken(12, 22), 22u);
  EXPECT_EQ(taken(13, 6000), 22u);
  EXPECT_EQ(taken(14, 22), 22u);
  EXPECT_EQ(taken(15, 6000), 22u);
}

TEST_F(CommCacheTest, WhereNothingWentTheFirstOneIsNotKnown) {
  const auto taken = [&](CommCache::Id id, uint64_t went) {
    EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(id));
    Later();
    return cache_.OnOpened(now_, id, went, absl::Milliseconds(60));
  };
  const CommCache::Id first = Open(4), second = Open(5), third = Open(6);
  EXPECT_EQ(taken(first, 0), 0u);
  EXPECT_EQ(taken(second, 40), 40u);  // alone as well
  EXPECT_EQ(taken(third, 44), 44u);
}

TEST_F(CommCacheTest, ABusyOneGoesForOneThatWaitsWhenItHadItsTurn) {
  const CommCache::Id a = Opened(5), b = Opened(6);
  cache_.OnLaunch(now_, a, 1);
  Later();
  cache_.OnLaunch(now_, b, 1);
  EXPECT_THAT(cache_.TakeToEvict(now_ + absl::Minutes(1)), IsEmpty());  // nobody waits
  const CommCache::Id c = Open(7);
  EXPECT_THAT(cache_.TakeToOpen(now_), IsEmpty());
  EXPECT_THAT(cache_.TakeToEvict(now_), IsEmpty());
  const absl::Time turn = now_ + CommCache::kTurn;
  EXPECT_LE(cache_.NextLook(), turn);
  EXPECT_THAT(cache_.TakeToEvict(turn), ElementsAre(std::make_pair(CliqueTo(5), true)));
  cache_.OnOver(turn, a);
  cache_.OnEnding(a, "");
  cache_.OnGone(a);
  EXPECT_THAT(cache_.TakeToOpen(now_), ElementsAre(c));
}

TEST_F(CommCacheTest, WhatIsUsedStaysAndSoDoesTheLastOne) {
  const CommCache::Id a = Opened(5, 400);
  EXPECT_THAT(Evict(now_), IsEmpty());
  const CommCache::Id b = Opened(6, 400);
  cache_.OnLaunch(now_, a, 1);
  EXPECT_THAT(Evict(now_), IsEmpty());  // b was used last
  Later();
  cache_.OnOver(now_, a);
  EXPECT_THAT(Evict(now_), ElementsAre(CliqueTo(6)));
  (void)b;
}

TEST_F(CommCacheTest, WhatNobodyUsesGoes) {
  const CommCache::Id a = Opened(5);
  EXPECT_EQ(cache_.NextLook(), now_ + absl::Minutes(10));
  EXPECT_THAT(Evict(now_ + absl::Minutes(9)), IsEmpty());
  now_ += absl::Minutes(9);
  Use(a);
  EXPECT_THAT(Evict(now_ + absl::Minutes(9)), IsEmpty());
  EXPECT_THAT(Evict(now_ + absl::Minutes(10)), ElementsAre(CliqueTo(5)));
}

// Whoever looks by NextLook alone must find it when its groups are over.
TEST_F(CommCacheTest, WhatIsBusyWhenIdleOnesAreLookedForIsLookedAtAgain) {
  const CommCache::Id a = Opened(5);
  cache_.OnLaunch(now_, a, 1);
  EXPECT_THAT(Evict(now_), IsEmpty());
  EXPECT_EQ(cache_.NextLook(), now_ + absl::Minutes(10));
  now_ += absl::Minutes(10);  // and still busy
  EXPECT_THAT(Evict(now_), IsEmpty());
  const absl::Time look = cache_.NextLook();
  EXPECT_GT(look, now_);
  cache_.OnOver(now_, a);
  EXPECT_THAT(Evict(look), IsEmpty());  // it was used until now
  now_ = cache_.NextLook();
  EXPECT_THAT(Evict(now_), ElementsAre(CliqueTo(5)));
}

}  // namespace
}  // namespace ferry
