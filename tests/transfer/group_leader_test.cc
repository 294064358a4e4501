// SPDX-License-Identifier: Apache-2.0
#include "transfer/clique/group_leader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kLeaderNow = absl::UnixEpoch();
constexpr Clique kClique{GlobalDeviceId(1), GlobalDeviceId(4)};
constexpr Clique kOther{GlobalDeviceId(1), GlobalDeviceId(5)};

class GroupLeaderTest : public testing::Test {
 protected:
  void Add(uint64_t id, absl::Time now = kLeaderNow) {
    EXPECT_TRUE(leader_.Add(now, kClique, {true, TransferId(id)}, 10, 0));
  }
  // The cliques that ask, once what had to be opened is open.
  std::vector<Clique> Due(absl::Time now) {
    std::vector<Clique> ask;
    for (GroupLeader::Due due = leader_.TakeDue(now);; due = leader_.TakeDue(now)) {
      ask.insert(ask.end(), due.ask.begin(), due.ask.end());
      for (const auto& [clique, attempt] : due.open) {
        EXPECT_TRUE(leader_.OnOpened(clique, attempt));
      }
      if (due.open.empty()) return ask;
    }
  }
  GroupLeader leader_{{.group_bytes = 100, .group_chunks = 8, .chunk_bytes = 20}};
};

TEST_F(GroupLeaderTest, AFirstGroupIsDueAtOnceAndNamedOnce) {
  Add(1);
  Add(2);
  leader_.Add(kLeaderNow, kOther, {false, TransferId(1)}, 10, 0);
  EXPECT_THAT(Due(kLeaderNow), ElementsAre(kClique, kOther));
  EXPECT_THAT(Due(kLeaderNow), IsEmpty());
  EXPECT_EQ(leader_.waiting(), 3u);
  const auto group = leader_.Cut(kClique);
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(group->attempt, 1u);
  EXPECT_EQ(group->number, 1u);
  EXPECT_THAT(group->chunks, SizeIs(2));
  EXPECT_EQ(leader_.waiting(), 1u);
}

TEST_F(GroupLeaderTest, WhileMoreIsAboutToComeAGroupWaitsUntilItIsFullOrOld) {
  Add(1);
  leader_.Hold(kClique, true);
  EXPECT_THAT(Due(kLeaderNow), IsEmpty());
  EXPECT_EQ(leader_.NextDue(), kLeaderNow + absl::Milliseconds(2));
  Add(2);
  leader_.Hold(kClique, false);
  EXPECT_THAT(Due(kLeaderNow), ElementsAre(kClique));
  EXPECT_THAT(leader_.Cut(kClique)->chunks, SizeIs(2));
  leader_.OnOver(kClique);

  leader_.Hold(kClique, true);
  for (uint64_t id = 3; id <= 10; ++id) Add(id);
  EXPECT_THAT(Due(kLeaderNow), ElementsAre(kClique));
  EXPECT_THAT(leader_.Cut(kClique)->chunks, SizeIs(8));
  leader_.OnOver(kClique);

  Add(11);
  EXPECT_THAT(Due(kLeaderNow), IsEmpty());
  EXPECT_THAT(Due(kLeaderNow + absl::Milliseconds(2)), ElementsAre(kClique));
}

TEST_F(GroupLeaderTest, BehindAnotherGroupItWaitsForItsAgeOrForTheOtherToBeOver) {
  Add(1);
  Due(kLeaderNow);
  leader_.Cut(kClique);
  Add(2);
  EXPECT_THAT(Due(kLeaderNow), IsEmpty());
  EXPECT_EQ(leader_.NextDue(), kLeaderNow + absl::Milliseconds(2));
  EXPECT_THAT(Due(kLeaderNow + absl::Milliseconds(2)), ElementsAre(kClique));
  EXPECT_EQ(leader_.Cut(kClique)->number, 2u);
  Add(3);
  EXPECT_THAT(Due(kLeaderNow), IsEmpty());
  leader_.OnOver(kClique);
  EXPECT_THAT(Due(kLeaderNow), IsEmpty());
  leader_.OnOver(kClique);
  EXPECT_THAT(Due(kLeaderNow), ElementsAre(kClique));
}

TEST_F(GroupLeaderTest, AFullGroupDoesNotWait) {
  Add(1);
  Due(kLeaderNow);
  leader_.Cut(kClique);
  for (uint64_t id = 2; id < 12; ++id) Add(id);
  EXPECT_THAT(Due(kLeaderNow), ElementsAre(kClique));
}

TEST_F(GroupLeaderTest, WhatIsTakenBackIsInNoGroup) {
  Add(1);
  Due(kLeaderNow);
  EXPECT_TRUE(leader_.Remove(kClique, {true, TransferId(1)}));
  EXPECT_FALSE(leader_.Remove(kClique, {true, TransferId(1)}));
  EXPECT_FALSE(leader_.Remove(kOther, {true, TransferId(1)}));
  EXPECT_FALSE(leader_.Cut(kClique).has_value());
  Add(2);
  EXPECT_THAT(Due(kLeaderNow), ElementsAre(kClique));
}

TEST_F(GroupLeaderTest, AnAttemptThatHasEndedIsNotUsedAgain) {
  EXPECT_FALSE(leader_.EndAttempt(kClique, 1));  // nothing was on it
  Add(1);
  Due(kLeaderNow);
  leader_.Cut(kClique);
  EXPECT_FALSE(leader_.EndAttempt(kClique, 2));
  EXPECT_TRUE(leader_.EndAttempt(kClique, 1));
  EXPECT_FALSE(leader_.EndAttempt(kClique, 1));
  leader_.OnOver(kClique);
  Add(2);
  Due(kLeaderNow);
  EXPECT_EQ(leader_.Cut(kClique)->attempt, 2u);
  leader_.Drop(kClique);
  leader_.OnOver(kClique);
  Add(3);
  Due(kLeaderNow);
  const auto group = leader_.Cut(kClique);
  EXPECT_EQ(group->attempt, 3u);
  EXPECT_EQ(group->number, 1u);  // for a follower that begins anew
}

TEST_F(GroupLeaderTest, OnlyAnIdleAttemptMayBeEvicted) {
  EXPECT_FALSE(leader_.IdleAttempt(kClique).has_value());
  Add(1);
  Due(kLeaderNow);
  leader_.Cut(kClique);
  EXPECT_FALSE(leader_.IdleAttempt(kClique).has_value());
  leader_.OnOver(kClique);
  EXPECT_EQ(leader_.IdleAttempt(kClique), 1u);
}

TEST_F(GroupLeaderTest, NothingAsksBeforeItsCommunicatorIsOpen) {
  Add(1);
  GroupLeader::Due due = leader_.TakeDue(kLeaderNow);
  EXPECT_THAT(due.ask, IsEmpty());
  EXPECT_THAT(due.open, ElementsAre(std::make_pair(kClique, 1u)));
  Add(2);
  due = leader_.TakeDue(kLeaderNow + absl::Seconds(1));
  EXPECT_TRUE(due.ask.empty() && due.open.empty());
  EXPECT_FALSE(leader_.OnOpened(kClique, 2));
  EXPECT_TRUE(leader_.OnOpened(kClique, 1));
  EXPECT_THAT(leader_.TakeDue(kLeaderNow).ask, ElementsAre(kClique));
}

TEST_F(GroupLeaderTest, OpeningsThatFailAreFurtherAndFurtherApart) {
  absl::Time now = kLeaderNow;
  Add(1);
  absl::Duration apart = GroupLeader::kFirstBackoff;
  for (uint32_t attempt = 1; attempt < 10; ++attempt) {
    EXPECT_THAT(leader_.TakeDue(now).open, ElementsAre(std::make_pair(kClique, attempt)));
    EXPECT_TRUE(leader_.EndAttempt(kClique, attempt));
    leader_.BackOff(now, kClique);
    EXPECT_THAT(leader_.TakeDue(now).open, IsEmpty());
    EXPECT_EQ(leader_.NextDue(), now + apart);
    now += apart;
    apart = std::min(2 * apart, GroupLeader::kLongestBackoff);
  }
  EXPECT_THAT(Due(now), ElementsAre(kClique));  // one that goes well
  leader_.Cut(kClique);
  leader_.OnOver(kClique);
  EXPECT_TRUE(leader_.EndAttempt(kClique, 10));
  Add(2);
  EXPECT_THAT(leader_.TakeDue(now).open, ElementsAre(std::make_pair(kClique, 11u)));
}

TEST_F(GroupLeaderTest, OneThatIsWantedIsOpenedWithoutAPair) {
  leader_.Warm(kClique);
  EXPECT_THAT(leader_.TakeDue(kLeaderNow).open, SizeIs(1));
  EXPECT_TRUE(leader_.OnOpened(kClique, 1));
  leader_.Warm(kClique);
  EXPECT_THAT(leader_.TakeDue(kLeaderNow).open, IsEmpty());
  EXPECT_EQ(leader_.IdleAttempt(kClique), 1u);
}

TEST_F(GroupLeaderTest, OneThatRunsOutWhenItIsWantedIsOpenedAgain) {
  Add(1);
  Due(kLeaderNow);
  leader_.Cut(kClique);
  leader_.RunOut(kClique, 1);
  leader_.Warm(kClique);
  EXPECT_THAT(leader_.TakeDue(kLeaderNow).open, IsEmpty());
  leader_.OnOver(kClique);
  EXPECT_THAT(leader_.TakeDue(kLeaderNow).close, ElementsAre(std::make_pair(kClique, 1u)));
  leader_.EndAttempt(kClique, 1);
  EXPECT_THAT(leader_.TakeDue(kLeaderNow).open, ElementsAre(std::make_pair(kClique, 2u)));
}

}  // namespace
}  // namespace ferry
