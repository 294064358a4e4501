// SPDX-License-Identifier: Apache-2.0
#include "transfer/near_misses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "absl/strings/str_cat.h"

namespace ferry {
namespace {

using Kind = NearMisses::Kind;
using Miss = NearMisses::Miss;
using testing::ElementsAre;
using testing::IsEmpty;

MatchKey Named(std::string key, uint64_t source = 0, uint64_t destination = 2,
               std::string domain = "job") {
  return {std::move(domain), GlobalDeviceId(source), GlobalDeviceId(destination), std::move(key)};
}

class NearMissesTest : public testing::Test {
 protected:
  const MatchKey& Add(MatchKey key, Side side = Side::kSend) {
    keys_.push_back(std::move(key));
    misses_.Add(side, keys_.back());
    return keys_.back();
  }
  // Ended at the time that is given.
  void Remember(const MatchKey& key, absl::Time ended) {
    misses_.Remember(ended, Side::kSend, key);
  }
  std::vector<Miss> Find(const MatchKey& wanted) const {
    return misses_.Find(now_, Side::kSend, wanted);
  }
  std::vector<std::string> Keys(const MatchKey& wanted) const {
    std::vector<std::string> keys;
    for (const Miss& miss : Find(wanted)) keys.push_back(miss.key.key);
    return keys;
  }
  static Miss Waits(Kind kind, MatchKey key) { return {kind, std::move(key), std::nullopt}; }
  static Miss OtherKeys(MatchKey wanted, size_t count) {
    return {Kind::kOtherKeys, std::move(wanted), std::nullopt, count};
  }

  NearMisses misses_;
  std::deque<MatchKey> keys_;
  const absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

TEST_F(NearMissesTest, TheNearestKeysAreThoseThatBeginAlikeTheLongest) {
  for (const char* key : {"a", "step-1/w", "step-41", "step-42/b", "step-5", "z"}) Add(Named(key));
  EXPECT_THAT(Keys(Named("step-42")), ElementsAre("step-42/b", "step-41", "step-5"));
  EXPECT_THAT(Keys(Named("step-1")), ElementsAre("step-1/w", "step-41", "step-42/b"));
}

TEST_F(NearMissesTest, KeysOfSomethingElseAreCountedAndNotNamed) {
  for (const char* key : {"data.bin", "logs", "weights.bin"}) Add(Named(key));
  EXPECT_THAT(Find(Named("model")), ElementsAre(OtherKeys(Named("model"), 3)));
  Add(Named("model-2"));
  EXPECT_THAT(Keys(Named("model")), ElementsAre("model-2"));
}

TEST_F(NearMissesTest, WhoHasEndedUnderAnotherKeyIsNotCounted) {
  Remember(Named("data.bin"), now_ - absl::Milliseconds(1));
  EXPECT_THAT(Find(Named("model")), IsEmpty());
}

TEST_F(NearMissesTest, OfVeryManyAtLeastThoseThatItLooksAtAreCounted) {
  for (size_t i = 0; i < NearMisses::kSteps; ++i) Add(Named(absl::StrCat("other-", i)));
  EXPECT_THAT(Find(Named("k")), ElementsAre(OtherKeys(Named("k"), NearMisses::kSteps)));
  Add(Named("one more"));
  Miss more = OtherKeys(Named("k"), NearMisses::kSteps);
  more.at_least = true;
  EXPECT_THAT(Find(Named("k")), ElementsAre(more));
}

TEST_F(NearMissesTest, WhatDiffersInOneRespectIsANearMissTheLikeliestFirst) {
  Add(Named("key 2"));
  Add(Named("key", 0, 2, "their job"));
  Add(Named("key", 0, 2, "and another one"));
  Add(Named("key", 1, 2));
  EXPECT_THAT(Find(Named("key")),
              ElementsAre(Waits(Kind::kDevices, Named("key", 1, 2)),
                          Waits(Kind::kDomain, Named("key", 0, 2, "and another one")),
                          Waits(Kind::kKey, Named("key 2"))));
}

TEST_F(NearMissesTest, WhatDiffersInTwoRespectsIsNone) {
  Add(Named("k", 1, 3));
  Add(Named("k", 2, 0));
  Add(Named("k", 1, 2, "their job"));
  Add(Named("other", 1, 2));
  Add(Named("other", 0, 2, "their job"));
  Add(Named("k"), Side::kReceive);
  EXPECT_THAT(Find(Named("k")), IsEmpty());
}

TEST_F(NearMissesTest, WhoHasLeftIsNone) {
  const MatchKey& left = Add(Named("k-left"));
  Add(Named("k-"));
  misses_.Remove(Side::kSend, left);
  EXPECT_THAT(Keys(Named("k")), ElementsAre("k-"));
}

TEST_F(NearMissesTest, WhoHasEndedIsRememberedForAWhile) {
  Remember(Named("k2"), now_ - absl::Seconds(1));
  Remember(Named("k"), now_ - absl::Seconds(2));
  EXPECT_THAT(Find(Named("k")),
              ElementsAre(Miss{Kind::kNothing, Named("k"), now_ - absl::Seconds(2)},
                          Miss{Kind::kKey, Named("k2"), now_ - absl::Seconds(1)}));
  EXPECT_THAT(misses_.Find(now_ + NearMisses::kMemory, Side::kSend, Named("k")), IsEmpty());
}

TEST_F(NearMissesTest, WhoWaitsAgainWaits) {
  Remember(Named("again 1"), now_ - absl::Seconds(1));
  const MatchKey& again = Add(Named("again 1"));
  EXPECT_THAT(Find(Named("again")), ElementsAre(Waits(Kind::kKey, Named("again 1"))));
  // What was remembered before goes, and does not take along what waits.
  for (size_t i = 0; i < NearMisses::kRemembered; ++i) {
    Remember(Named(absl::StrCat("k", i), 4, 5), now_ + i * NearMisses::kTurn);
  }
  EXPECT_THAT(Find(Named("again")), ElementsAre(Waits(Kind::kKey, Named("again 1"))));
  misses_.Remove(Side::kSend, again);
  EXPECT_EQ(misses_.size(), NearMisses::kRemembered);
}

TEST_F(NearMissesTest, MemoryIsBounded) {
  for (size_t i = 0; i < 3 * NearMisses::kRemembered; ++i) {
    Remember(Named(absl::StrCat("k", i)), now_ + i * NearMisses::kTurn);
    Remember(Named("the same"), now_ + i * NearMisses::kTurn);
  }
  EXPECT_LE(misses_.size(), NearMisses::kRemembered);
  EXPECT_GT(misses_.size(), NearMisses::kRemembered / 3);
}

TEST_F(NearMissesTest, OnlyWhatCounts) {
  Add(Named("k", 0, 3));
  Add(Named("k", 0, 4));
  const auto found = misses_.Find(now_, Side::kSend, Named("k"), [](const MatchKey& key) {
    return key.destination == GlobalDeviceId(4);
  });
  EXPECT_THAT(found, ElementsAre(Waits(Kind::kDevices, Named("k", 0, 4))));
}

// Others' keys between ours are passed by, but not without an end.
TEST_F(NearMissesTest, ASearchLooksAtSoManyOnly) {
  Add(Named("k-0"));
  for (size_t i = 0; i < NearMisses::kSteps; ++i) {
    Add(Named(absl::StrCat("k-", 100 + i), 0, 2, "their job"));
  }
  Add(Named("k-9"));
  EXPECT_THAT(Keys(Named("k-9x")), ElementsAre("k-9"));
}

TEST_F(NearMissesTest, OfManyThatEndAtOnceTheFirstAreRemembered) {
  for (size_t i = 0; i < NearMisses::kRemembered; ++i) {
    Remember(Named(absl::StrCat("k", i)), now_);
  }
  EXPECT_EQ(misses_.size(), NearMisses::kMemories);
}

TEST_F(NearMissesTest, SearchesAndAdditionsHaveTurns) {
  size_t searches = 0, additions = 0;
  while (misses_.TakeSearch(now_)) ++searches;
  while (misses_.TakeAddition()) ++additions;
  EXPECT_EQ(searches, NearMisses::kSearches);
  EXPECT_EQ(additions, NearMisses::kAdditions);
  EXPECT_FALSE(misses_.TakeSearch(now_ + NearMisses::kTurn - absl::Nanoseconds(1)));
  EXPECT_TRUE(misses_.TakeSearch(now_ + NearMisses::kTurn));
  EXPECT_TRUE(misses_.TakeAddition());
}

}  // namespace
}  // namespace ferry
