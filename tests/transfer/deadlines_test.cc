// SPDX-License-Identifier: Apache-2.0
#include "transfer/deadlines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace ferry {
namespace {

using ::testing::ElementsAre;

constexpr PeerId kSelf(0);
constexpr PeerId kPeer(1);

std::vector<Due> TakeAll(Deadlines& deadlines, int64_t nanos) {
  std::vector<Due> taken;
  while (const auto due = deadlines.TakeDue(nanos)) taken.push_back(*due);
  return taken;
}

TEST(DeadlinesTest, ComeInTheOrderOfTimeWhoeverSetThem) {
  Deadlines deadlines;
  EXPECT_EQ(deadlines.first(), Deadlines::kNever);
  const Due late{30, kSelf, TransferId(1)};
  const Due soon{10, kPeer, TransferId(7)};
  const Due same{10, kSelf, TransferId(9)};
  for (const Due& due : {late, soon, same}) deadlines.Add(due);
  EXPECT_EQ(deadlines.first(), 10);
  EXPECT_EQ(deadlines.TakeDue(9), std::nullopt);
  EXPECT_THAT(TakeAll(deadlines, 10), ElementsAre(same, soon));
  EXPECT_EQ(deadlines.first(), 30);
  EXPECT_EQ(deadlines.size(), 1u);
}

TEST(DeadlinesTest, WhatIsTakenOutDoesNotCome) {
  Deadlines deadlines;
  for (uint64_t id : {5, 3, 4}) deadlines.Add({10, kSelf, TransferId(id)});
  deadlines.Remove({10, kSelf, TransferId(4)});
  deadlines.Remove({10, kSelf, TransferId(3)});
  EXPECT_THAT(TakeAll(deadlines, 10), ElementsAre(Due{10, kSelf, TransferId(5)}));
  EXPECT_EQ(deadlines.first(), Deadlines::kNever);
}

TEST(DeadlinesTest, OneThatWasTakenOutMaySetTheSameTimeAgain) {
  Deadlines deadlines;
  for (uint64_t id : {3, 4, 5}) deadlines.Add({10, kSelf, TransferId(id)});
  for (uint64_t id : {3, 4}) deadlines.Remove({10, kSelf, TransferId(id)});
  deadlines.Add({10, kSelf, TransferId(4)});
  EXPECT_THAT(TakeAll(deadlines, 10),
              ElementsAre(Due{10, kSelf, TransferId(4)}, Due{10, kSelf, TransferId(5)}));
}

TEST(DeadlinesTest, AnyOrderGivesWhatASetOfThemGives) {
  std::mt19937_64 random(7);
  Deadlines deadlines;
  std::set<std::tuple<int64_t, uint32_t, uint64_t>> expected;
  std::vector<Due> in;
  for (int step = 0; step < 20'000; ++step) {
    const bool fill = step % 2'000 < 1'200;  // up and down
    if (in.empty() || random() % 8 < (fill ? 7 : 1)) {
      const Due due{static_cast<int64_t>(random() % 4), PeerId(random() % 2),
                    TransferId(random() % 100'000)};
      if (!expected.emplace(due.nanos, due.peer.value(), due.transfer.value()).second) continue;
      deadlines.Add(due);
      in.push_back(due);
    } else {
      const size_t which = random() % in.size();
      const Due due = in[which];
      in[which] = in.back();
      in.pop_back();
      expected.erase({due.nanos, due.peer.value(), due.transfer.value()});
      deadlines.Remove(due);
    }
    ASSERT_EQ(deadlines.size(), expected.size());
    ASSERT_EQ(deadlines.first(),
              expected.empty() ? Deadlines::kNever : std::get<0>(*expected.begin()));
  }
  for (const auto& [nanos, peer, transfer] : expected) {
    ASSERT_EQ(deadlines.TakeDue(4), (Due{nanos, PeerId(peer), TransferId(transfer)}));
  }
  EXPECT_EQ(deadlines.TakeDue(4), std::nullopt);
}

}  // namespace
}  // namespace ferry
