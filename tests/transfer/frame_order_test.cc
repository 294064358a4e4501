// SPDX-License-Identifier: Apache-2.0
#include "transfer/frame_order.h"

#include <limits>
#include <string>
#include <vector>

#include "tests/transfer/two_daemons.h"

namespace ferry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kLastNumber = std::numeric_limits<uint64_t>::max();

// Events that have their numbers as ids.
PeerEvents Events(uint64_t first, uint64_t count) {
  PeerEvents said;
  said.first_event = first;
  for (uint64_t i = 0; i < count; ++i) said.arenas_gone.push_back(ArenaId(first + i));
  return said;
}

auto Refused(const char* text) {
  return AllOf(Fails(absl::StatusCode::kUnavailable, Reason::kProtocolError), Says(text));
}

std::vector<uint64_t> TakeAll(FrameOrder& order) {
  std::vector<uint64_t> ids;
  while (auto said = order.Take()) {
    for (const ArenaId id : said->arenas_gone) ids.push_back(id.value());
  }
  return ids;
}

TEST(FrameOrder, WhatIsNextComesOutAtOnce) {
  FrameOrder order;
  EXPECT_THAT(TakeAll(order), IsEmpty());
  EXPECT_TRUE(order.Put(Events(1, 2)).ok());
  EXPECT_THAT(TakeAll(order), ElementsAre(1, 2));
  EXPECT_TRUE(order.Put(Events(3, 1)).ok());
  EXPECT_THAT(TakeAll(order), ElementsAre(3));
}

TEST(FrameOrder, WhatIsAheadWaitsForItsTurn) {
  FrameOrder order;
  EXPECT_TRUE(order.Put(Events(6, 1)).ok());
  EXPECT_TRUE(order.Put(Events(2, 3)).ok());
  EXPECT_THAT(TakeAll(order), IsEmpty());
  EXPECT_TRUE(order.Put(Events(1, 1)).ok());
  EXPECT_THAT(TakeAll(order), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(order.Put(Events(5, 1)).ok());
  EXPECT_THAT(TakeAll(order), ElementsAre(5, 6));
}

TEST(FrameOrder, AFrameWithoutANumberIsRefused) {
  FrameOrder order;
  EXPECT_TRUE(order.Put(Events(1, 2)).ok());
  PeerEvents said = Events(3, 1);
  said.first_event = 0;
  EXPECT_THAT(order.Put(std::move(said)), Refused("have no number"));
  EXPECT_TRUE(order.Put(Events(3, 1)).ok());
  EXPECT_THAT(TakeAll(order), ElementsAre(1, 2, 3));
}

TEST(FrameOrder, NoEventIsTakenTwice) {
  // 1 and 2 are taken, 5 to 7 and 9 wait.
  for (const auto& [first, count] :
       std::vector<std::pair<uint64_t, uint64_t>>{{1, 1},
                                                  {2, 1},
                                                  {2, 2},
                                                  {5, 3},
                                                  {5, 1},
                                                  {4, 2},
                                                  {3, 10},
                                                  {6, 1},
                                                  {7, 2},
                                                  {8, 2},
                                                  {9, 1},
                                                  {kLastNumber, 1},
                                                  {kLastNumber - 1, 2}}) {
    FrameOrder order;
    for (PeerEvents& said : std::vector{Events(1, 2), Events(5, 3), Events(9, 1)}) {
      ASSERT_TRUE(order.Put(std::move(said)).ok());
      TakeAll(order);
    }
    EXPECT_THAT(order.Put(Events(first, count)), Refused("said twice")) << first << ", " << count;
    EXPECT_TRUE(order.Put(Events(8, 1)).ok());
    EXPECT_TRUE(order.Put(Events(3, 2)).ok());
    EXPECT_THAT(TakeAll(order), ElementsAre(3, 4, 5, 6, 7, 8, 9));
  }
}

TEST(FrameOrder, WhatWaitsHasABound) {
  FrameOrder order;
  EXPECT_TRUE(order.Put(Events(2, FrameOrder::kMostHeld)).ok());
  EXPECT_TRUE(order.Put(Events(2 + FrameOrder::kMostHeld, 1)).ok());
  EXPECT_THAT(order.Put(Events(3 + FrameOrder::kMostHeld, 1)),
              Refused("1048577 events wait for event 1"));
}

TEST(FrameOrder, WhatWasTakenDoesNotCount) {
  FrameOrder order;
  uint64_t next = 1;
  for (int i = 0; i < 3; ++i, next += FrameOrder::kMostHeld) {
    EXPECT_TRUE(order.Put(Events(next, FrameOrder::kMostHeld)).ok());
    EXPECT_EQ(TakeAll(order).size(), FrameOrder::kMostHeld);
  }
}

}  // namespace
}  // namespace ferry
