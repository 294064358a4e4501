// SPDX-License-Identifier: Apache-2.0
#include "transfer/matcher.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>

namespace ferry {
namespace {

using Outcome = TransferMatcher::Outcome;

// Stays where it is, as the keys of halves that wait do. Another one each time.
const MatchKey& Key(std::string key, std::string domain = "job", uint64_t source = 0,
                    uint64_t destination = 2) {
  static std::deque<MatchKey> keys;
  return keys.emplace_back(MatchKey{std::move(domain), GlobalDeviceId(source),
                                    GlobalDeviceId(destination), std::move(key)});
}
Half Send(uint64_t id, uint32_t peer = 0) { return {Side::kSend, PeerId(peer), TransferId(id)}; }
Half Receive(uint64_t id) { return {Side::kReceive, PeerId(1), TransferId(id)}; }

TEST(TransferMatcherTest, PairsWhateverComesFirst) {
  TransferMatcher matcher;
  EXPECT_EQ(matcher.Add(Key("x"), Send(1)).outcome, Outcome::kWaiting);
  EXPECT_EQ(matcher.Add(Key("y"), Receive(2)).outcome, Outcome::kWaiting);
  const auto y = matcher.Add(Key("y"), Send(3));
  EXPECT_EQ(y.outcome, Outcome::kMatched);
  EXPECT_EQ(y.other, Receive(2));
  const auto x = matcher.Add(Key("x"), Receive(4));
  EXPECT_EQ(x.outcome, Outcome::kMatched);
  EXPECT_EQ(x.other, Send(1));
  EXPECT_EQ(matcher.size(), 0u);
}

TEST(TransferMatcherTest, EveryPartOfTheKeyCounts) {
  TransferMatcher matcher;
  matcher.Add(Key("x"), Send(1));
  EXPECT_EQ(matcher.Add(Key("z"), Receive(2)).outcome, Outcome::kWaiting);
  EXPECT_EQ(matcher.Add(Key("x", "other"), Receive(3)).outcome, Outcome::kWaiting);
  EXPECT_EQ(matcher.Add(Key("x", "job", 1), Receive(4)).outcome, Outcome::kWaiting);
  EXPECT_EQ(matcher.Add(Key("x", "job", 0, 3), Receive(5)).outcome, Outcome::kWaiting);
  EXPECT_EQ(matcher.Add(Key("x", "job", 2, 0), Receive(6)).outcome, Outcome::kWaiting);
  EXPECT_EQ(matcher.size(), 6u);
}

TEST(TransferMatcherTest, ASecondHalfOfOneSideIsRefusedAndChangesNothing) {
  TransferMatcher matcher;
  matcher.Add(Key("x"), Send(1));
  const auto second = matcher.Add(Key("x"), Send(2));
  EXPECT_EQ(second.outcome, Outcome::kKeyInUse);
  EXPECT_EQ(second.other, Send(1));
  EXPECT_EQ(matcher.Add(Key("x"), Receive(3)).other, Send(1));
}

// Of the keys `names`, which have one letter each.
const MatchKey& Convoy(const std::string& names) {
  std::string packed;
  for (const char name : names) packed += {1, name};
  MatchKey key = Key(packed);
  key.count = static_cast<uint32_t>(names.size());
  static std::deque<MatchKey> keys;
  return keys.emplace_back(std::move(key));
}

TEST(TransferMatcherTest, AConvoyIsMatchedByOneOfTheSameKeysInTheirOrder) {
  TransferMatcher matcher;
  EXPECT_EQ(matcher.Add(Convoy("abc"), Send(1)).outcome, Outcome::kWaiting);
  EXPECT_EQ(matcher.Find(Key("b")), Send(1));
  EXPECT_EQ(matcher.Find(Key("d")), std::nullopt);
  for (const char* other : {"acb", "ab", "abcd", "cde", "xbx"}) {
    EXPECT_EQ(matcher.Add(Convoy(other), Receive(2)).outcome, Outcome::kApart) << other;
  }
  EXPECT_EQ(matcher.Add(Convoy("abc"), Send(2)).outcome, Outcome::kApart);
  const auto pair = matcher.Add(Convoy("abc"), Receive(3));
  EXPECT_EQ(pair.outcome, Outcome::kMatched);
  EXPECT_EQ(pair.other, Send(1));
  EXPECT_EQ(matcher.size(), 0u);
  EXPECT_EQ(matcher.Find(Key("b")), std::nullopt);
  EXPECT_EQ(matcher.Add(Convoy("xbx"), Receive(4)).outcome, Outcome::kApart);  // one key twice
  EXPECT_EQ(matcher.Add(Convoy("xb"), Receive(4)).outcome, Outcome::kWaiting);
}

TEST(TransferMatcherTest, AConvoyAndAHalfOfOneOfItsKeysDoNotWaitBoth) {
  TransferMatcher matcher;
  matcher.Add(Convoy("abc"), Send(1));
  const auto apart = matcher.Add(Key("b"), Receive(2));
  EXPECT_EQ(apart.outcome, Outcome::kApart);
  EXPECT_EQ(apart.other, Send(1));
  EXPECT_EQ(matcher.Add(Key("c"), Send(2)).outcome, Outcome::kKeyInUse);
  EXPECT_EQ(matcher.Add(Key("b", "other"), Receive(2)).outcome, Outcome::kWaiting);
  EXPECT_TRUE(matcher.Remove(Convoy("abc"), Send(1)));
  EXPECT_FALSE(matcher.Remove(Convoy("abc"), Send(1)));
  EXPECT_EQ(matcher.Add(Key("b"), Receive(2)).outcome, Outcome::kWaiting);
  EXPECT_EQ(matcher.Add(Convoy("abc"), Send(1)).outcome, Outcome::kApart);
  EXPECT_EQ(matcher.Add(Convoy("ac"), Send(1)).outcome, Outcome::kWaiting);
}

TEST(TransferMatcherTest, AKeyIsFreeOnceItsPairIsOut) {
  TransferMatcher matcher;
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(matcher.Add(Key("x"), Send(2 * i)).outcome, Outcome::kWaiting);
    EXPECT_EQ(matcher.Add(Key("x"), Receive(2 * i + 1)).other, Send(2 * i));
  }
}

TEST(TransferMatcherTest, RemovesOnlyTheHalfThatWaits) {
  TransferMatcher matcher;
  matcher.Add(Key("x"), Send(1, 0));
  EXPECT_FALSE(matcher.Remove(Key("x"), Send(2, 0)));
  EXPECT_FALSE(matcher.Remove(Key("x"), Send(1, 5)));
  EXPECT_FALSE(matcher.Remove(Key("y"), Send(1, 0)));
  EXPECT_EQ(matcher.Find(Key("x")), Send(1, 0));
  EXPECT_TRUE(matcher.Remove(Key("x"), Send(1, 0)));
  EXPECT_EQ(matcher.Find(Key("x")), std::nullopt);
}

}  // namespace
}  // namespace ferry
