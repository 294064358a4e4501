// SPDX-License-Identifier: Apache-2.0
// What is counted when transfers are over, and what is seen of those that are not. Firings while
// their batch lives: tests/e2e/activity_test.cc.
#include "daemon/traffic.h"

#include "tests/daemon/session_table_rig.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;

constexpr GlobalDeviceId kHere(1), kThere(4);

Ended EndedOf(Side side, uint64_t bytes, absl::Status status = absl::OkStatus()) {
  Ended ended;
  ended.side = side;
  ended.source = side == Side::kSend ? kHere : kThere;
  ended.destination = side == Side::kSend ? kThere : kHere;
  ended.route = Route::kTcp;
  ended.bytes = bytes;
  ended.status = std::move(status);
  return ended;
}

class TrafficTest : public ::testing::Test {
 protected:
  TrafficTest() : engine_(Map(), {}) {}
  static DeviceMap Map() {
    DeviceMap map;
    map.self = PeerId(0);
    map.owner = {{kHere, PeerId(0)}, {kThere, PeerId(1)}};
    map.node_names = {"node-a", "node-b"};
    return map;
  }
  Traffic::View Look(size_t oldest = 0) {
    return traffic_.Look(engine_.view(), rig_.table, oldest);
  }

  testing::SessionTableRig rig_;
  TransferEngine engine_;
  Traffic traffic_;
};

TEST_F(TrafficTest, BothDirectionsOfAWayAreOne) {
  traffic_.OnEnded(EndedOf(Side::kSend, 100), 0);
  traffic_.OnEnded(EndedOf(Side::kReceive, 7), 0);
  const Moved failed = traffic_.OnEnded(EndedOf(Side::kReceive, 9, absl::InternalError("no")), 0);
  EXPECT_EQ(failed.failed, 1u);
  EXPECT_EQ(failed.received_bytes, 0u);
  const Traffic::View view = Look();
  ASSERT_EQ(view.ways.size(), 1u);
  const auto& [way, moved] = *view.ways.begin();
  EXPECT_EQ(way, Traffic::Way(kHere, kThere, Route::kTcp));
  EXPECT_EQ(moved.sent_bytes, 100u);
  EXPECT_EQ(moved.received_bytes, 7u);
  EXPECT_EQ(moved.sent, 1u);
  EXPECT_EQ(moved.received, 1u);
  EXPECT_EQ(moved.failed, 1u);
}

TEST_F(TrafficTest, APreparedOneHasMovedWhatWasFiredHoweverItEnds) {
  Ended ended = EndedOf(Side::kSend, 100, absl::CancelledError("released"));
  ended.prepared = true;
  traffic_.OnEnded(ended, 5);
  const Traffic::View view = Look();
  EXPECT_EQ(view.ways.begin()->second.sent_bytes, 500u);
  EXPECT_EQ(view.ways.begin()->second.sent, 5u);
  EXPECT_EQ(view.ways.begin()->second.failed, 1u);
  EXPECT_EQ(view.fired[static_cast<size_t>(Route::kTcp)].sent_bytes, 500u);
  EXPECT_EQ(view.fired[static_cast<size_t>(Route::kUcx)].sent_bytes, 0u);
}

TEST_F(TrafficTest, WhatIsInFlightStandsAtItsStateSinceTheOldest) {
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  for (uint64_t i = 1; i <= 3; ++i) {
    std::vector<TransferSpec> batch(1);
    batch[0].side = Side::kSend;
    batch[0].key = {"job", kHere, kThere, absl::StrCat("k", i)};
    engine_.Post(now + absl::Seconds(i), SessionId(9), i, absl::MakeSpan(batch));
  }
  const Traffic::View view = Look(2);
  EXPECT_EQ(view.states[0].count, 3u) << "waiting, for the link";
  EXPECT_EQ(view.states[0].oldest, now + absl::Seconds(1));
  EXPECT_EQ(view.states[1].count, 0u);
  EXPECT_EQ(view.states[1].oldest, absl::InfiniteFuture());
  EXPECT_THAT(view.oldest,
              ElementsAre(MakeTransferId(SessionId(9), 1), MakeTransferId(SessionId(9), 2)));
  EXPECT_TRUE(view.launched.empty());
}

}  // namespace
}  // namespace ferry
