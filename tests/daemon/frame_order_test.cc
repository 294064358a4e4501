// SPDX-License-Identifier: Apache-2.0
#include "daemon/frame_order.h"

#include <limits>
#include <string>
#include <vector>

#include "tests/daemon/support.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using testing::Is;
using ::testing::IsEmpty;

constexpr uint64_t kLastNumber = std::numeric_limits<uint64_t>::max();

// Events that have their numbers as ids.
PeerFrame Events(uint64_t first, uint64_t count) {
  PeerFrame frame;
  frame.first_event = first;
  for (uint64_t i = 0; i < count; ++i) frame.arenas_gone.push_back(ArenaId(first + i));
  return frame;
}

std::vector<uint64_t> TakeAll(FrameOrder& order) {
  std::vector<uint64_t> ids;
  while (auto frame = order.Take()) {
    for (const ArenaId id : frame->arenas_gone) ids.push_back(id.value());
  }
  return ids;
}

TEST(FrameOrder, WhatIsNextComesOutAtOnce) {
  FrameOrder order;
  EXPECT_THAT(TakeAll(order), IsEmpty());
  EXPECT_THAT(order.Put(Events(1, 2)), Is("OK"));
  EXPECT_THAT(TakeAll(order), ElementsAre(1, 2));
  EXPECT_THAT(order.Put(Events(3, 1)), Is("OK"));
  EXPECT_THAT(TakeAll(order), ElementsAre(3));
}

TEST(FrameOrder, WhatIsAheadWaitsForItsTurn) {
  FrameOrder order;
  EXPECT_THAT(order.Put(Events(6, 1)), Is("OK"));
  EXPECT_THAT(order.Put(Events(2, 3)), Is("OK"));
  EXPECT_THAT(TakeAll(order), IsEmpty());
  EXPECT_THAT(order.Put(Events(1, 1)), Is("OK"));
  EXPECT_THAT(TakeAll(order), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(order.Put(Events(5, 1)), Is("OK"));
  EXPECT_THAT(TakeAll(order), ElementsAre(5, 6));
}

TEST(FrameOrder, FramesWithoutNumbersAreInTheOrderOfTheirComing) {
  FrameOrder order;
  for (const uint64_t id : {7, 8, 9}) {
    PeerFrame frame = Events(id, 2);
    frame.first_event = 0;
    EXPECT_THAT(order.Put(std::move(frame)), Is("OK"));
  }
  EXPECT_THAT(TakeAll(order), ElementsAre(7, 8, 8, 9, 9, 10));
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
    for (PeerFrame& frame : std::vector{Events(1, 2), Events(5, 3), Events(9, 1)}) {
      ASSERT_THAT(order.Put(std::move(frame)), Is("OK"));
      TakeAll(order);
    }
    EXPECT_THAT(order.Put(Events(first, count)), Is("UNAVAILABLE/PROTOCOL_ERROR", "said twice"))
        << first << ", " << count;
    EXPECT_THAT(order.Put(Events(8, 1)), Is("OK"));
    EXPECT_THAT(order.Put(Events(3, 2)), Is("OK"));
    EXPECT_THAT(TakeAll(order), ElementsAre(3, 4, 5, 6, 7, 8, 9));
  }
}

TEST(FrameOrder, WhatWaitsHasABound) {
  FrameOrder order;
  EXPECT_THAT(order.Put(Events(2, FrameOrder::kMostHeld)), Is("OK"));
  EXPECT_THAT(order.Put(Events(2 + FrameOrder::kMostHeld, 1)), Is("OK"));
  EXPECT_THAT(order.Put(Events(3 + FrameOrder::kMostHeld, 1)),
              Is("UNAVAILABLE/PROTOCOL_ERROR", "1048577 events wait for event 1"));
}

TEST(FrameOrder, WhatWasTakenDoesNotCount) {
  FrameOrder order;
  uint64_t next = 1;
  for (int i = 0; i < 3; ++i, next += FrameOrder::kMostHeld) {
    EXPECT_THAT(order.Put(Events(next, FrameOrder::kMostHeld)), Is("OK"));
    EXPECT_EQ(TakeAll(order).size(), FrameOrder::kMostHeld);
  }
}

}  // namespace
}  // namespace ferry
