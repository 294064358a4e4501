// SPDX-License-Identifier: Apache-2.0
#include "transfer/clique/reservations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr GlobalDeviceId kLane(3);

TEST(LaneReservationsTest, OneHoldsALaneAndTheOthersWaitInOrder) {
  LaneReservations lanes;
  for (uint64_t ticket : {7, 8, 9}) lanes.Ask(kLane, ticket);
  EXPECT_THAT(lanes.TakeGranted(), ElementsAre(7));
  EXPECT_THAT(lanes.TakeGranted(), IsEmpty());
  lanes.Release(kLane, 8);
  lanes.Commit(kLane, 7);
  EXPECT_THAT(lanes.TakeGranted(), ElementsAre(9));
  EXPECT_EQ(lanes.Head(kLane), 7u);
}

TEST(LaneReservationsTest, HolderAndQueueAreTwoAtMost) {
  LaneReservations lanes;
  for (uint64_t ticket : {1, 2, 3}) lanes.Ask(kLane, ticket);
  lanes.Commit(kLane, 1);
  lanes.Commit(kLane, 2);
  EXPECT_THAT(lanes.TakeGranted(), ElementsAre(1, 2));
  lanes.Release(kLane, 1);
  EXPECT_THAT(lanes.TakeGranted(), ElementsAre(3));
  EXPECT_EQ(lanes.Head(kLane), 2u);
}

TEST(LaneReservationsTest, WhoeverGoesMakesPlaceWhereverItStands) {
  LaneReservations lanes;
  for (uint64_t ticket : {1, 2}) lanes.Ask(kLane, ticket);
  lanes.Release(kLane, 1);  // granted, and nobody has taken the grant
  EXPECT_THAT(lanes.TakeGranted(), ElementsAre(2));
  lanes.Release(kLane, 2);
  EXPECT_TRUE(lanes.idle());
  EXPECT_FALSE(lanes.Head(kLane).has_value());
}

// The rules for cliques of any size, on any lanes: whatever the order of events, all groups are
// over in the end.
TEST(LaneReservationsTest, NoRingOfGroupsLocksUp) {
  struct Group {
    std::vector<uint64_t> lanes;  // ascending
    size_t held = 0;              // 0: has yet to ask
    bool asked = false;
    bool over = false;
  };
  uint64_t dice = 1;
  const auto random = [&](uint64_t below) {
    dice = dice * 6364136223846793005 + 1442695040888963407;
    return (dice >> 33) % below;
  };
  for (int round = 0; round < 200; ++round) {
    constexpr uint64_t kLanes = 5;
    std::map<uint64_t, Group> groups;
    for (uint64_t ticket = 1; ticket <= 30; ++ticket) {
      while (groups[ticket].lanes.size() < 2) {
        groups[ticket].lanes.clear();
        for (uint64_t lane = 0; lane < kLanes; ++lane) {
          if (random(2) == 0) groups[ticket].lanes.push_back(lane);
        }
      }
    }
    LaneReservations lanes;
    size_t left = groups.size();
    for (int steps = 0; left > 0 && steps < 100'000; ++steps) {
      for (uint64_t ticket : lanes.TakeGranted()) {
        Group& group = groups[ticket];
        group.asked = false;
        if (++group.held < group.lanes.size()) continue;
        for (uint64_t lane : group.lanes) lanes.Commit(GlobalDeviceId(lane), ticket);
      }
      const uint64_t ticket = 1 + random(30);
      Group& group = groups[ticket];
      if (group.over || group.asked) continue;
      if (group.held < group.lanes.size()) {
        group.asked = true;
        lanes.Ask(GlobalDeviceId(group.lanes[group.held]), ticket);
        continue;
      }
      bool runs = true;  // only where it is first at every lane
      for (uint64_t lane : group.lanes) runs = runs && lanes.Head(GlobalDeviceId(lane)) == ticket;
      if (!runs) continue;
      group.over = true;
      --left;
      for (uint64_t lane : group.lanes) lanes.Release(GlobalDeviceId(lane), ticket);
    }
    ASSERT_EQ(left, 0u) << "round " << round;
    EXPECT_TRUE(lanes.idle());
  }
}

}  // namespace
}  // namespace ferry
