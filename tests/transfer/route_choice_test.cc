// SPDX-License-Identifier: Apache-2.0
// RouteChoice without engines: one daemon with a host device and a GPU, and one peer with the same.
#include "transfer/route_choice.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ferry {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr PeerId kSelf(0), kPeer(1);
constexpr GlobalDeviceId kOurHost(0), kOurGpu(1), kTheirHost(2), kTheirGpu(3);
constexpr uint64_t kSmall = 8, kLarge = uint64_t{8} << 20;

class RouteChoiceTest : public testing::Test {
 protected:
  RouteChoiceTest() {
    choice_.AddPeer();
    choice_.AddPeer();
  }
  // A link over which these routes are available, the others "not built".
  void LinkUp(std::initializer_list<Route> available) {
    choice_.OnPeerUp(kPeer, TableOf(available), {kTheirGpu});
  }
  static RouteTable TableOf(std::initializer_list<Route> available) {
    RouteTable table(kRoutes, RouteState{false, "not built"});
    for (const Route route : available) table[static_cast<size_t>(route)].available = true;
    return table;
  }
  Route Picked(GlobalDeviceId from = kTheirHost, GlobalDeviceId to = kOurHost,
               uint64_t bytes = kSmall, uint8_t excluded = 0, bool lasting = false) {
    return choice_.Pick(now_, from, to, bytes, excluded, lasting).route;
  }
  // Enough transfers of the peer's by one route, each of which takes so long.
  void Measure(Route route, absl::Duration each, uint64_t bytes = kSmall,
               GlobalDeviceId from = kTheirHost, GlobalDeviceId to = kOurHost) {
    for (int i = 0; i < 8; ++i) {
      RouteEstimate& estimate = choice_.EstimateOf(route, {"", from, to, "k"});
      estimate.OnLaunch(now_);
      now_ += each;
      estimate.OnDone(now_, bytes, true);
    }
  }

  const DeviceMap devices_{
      kSelf,
      {{kOurHost, kSelf}, {kOurGpu, kSelf}, {kTheirHost, kPeer}, {kTheirGpu, kPeer}},
      {"node-a", "node-b"},
      {kOurGpu}};
  const DeviceOwners owners_{devices_.owner};
  absl::btree_map<Clique, CommRecord> comms_;
  RouteChoice choice_{devices_,
                      owners_,
                      {Route::kLocal, Route::kMapped, Route::kNccl, Route::kTcp},
                      /*by_estimate=*/true,
                      [this](const Clique& clique) -> const CommRecord* {
                        const auto comm = comms_.find(clique);
                        return comm == comms_.end() ? nullptr : &comm->second;
                      }};
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

TEST_F(RouteChoiceTest, WithoutALinkThereIsNoRouteAndTheTextSaysWhyNot) {
  EXPECT_EQ(Picked(), Route::kUnspecified);
  EXPECT_EQ(choice_.WhyNot(Route::kTcp, kTheirHost, kOurHost),
            "no link to node-b: no connection yet");
  choice_.SetLastError(kPeer, absl::UnavailableError("connection refused"));
  EXPECT_THAT(choice_.WhyNot(Route::kTcp, kTheirHost, kOurHost), HasSubstr("connection refused"));
  EXPECT_EQ(choice_.WhyNot(Route::kUcx, kTheirHost, kOurHost),
            "not in the configured order of routes");
}

TEST_F(RouteChoiceTest, BetweenDevicesOfOneDaemonThereIsOnlyLocal) {
  EXPECT_EQ(Picked(kOurGpu, kOurHost), Route::kLocal);
  EXPECT_EQ(choice_.OtherEnd(kOurGpu, kOurHost), kSelf);
  EXPECT_EQ(choice_.WhyNot(Route::kMapped, kOurGpu, kOurHost), "both devices belong to node-a");
  LinkUp({Route::kLocal, Route::kTcp});
  EXPECT_FALSE(choice_.Available(Route::kLocal, kTheirHost, kOurHost));
  EXPECT_EQ(choice_.WhyNot(Route::kLocal, kTheirHost, kOurHost), "device 2 belongs to node-b");
}

TEST_F(RouteChoiceTest, TheFirstOfTheOrderThatIsAvailableAndNotExcluded) {
  LinkUp({Route::kTcp, Route::kMapped});
  EXPECT_EQ(Picked(), Route::kMapped);
  EXPECT_EQ(Picked(kTheirHost, kOurHost, kSmall, RouteBit(Route::kMapped)), Route::kTcp);
  choice_.OnPeerRoutes(kPeer, TableOf({Route::kTcp}));
  EXPECT_EQ(Picked(), Route::kTcp);
  EXPECT_EQ(choice_.WhyNot(Route::kMapped, kTheirHost, kOurHost), "not built");
  choice_.OnPeerLost(kPeer);
  EXPECT_EQ(Picked(), Route::kUnspecified);
}

TEST_F(RouteChoiceTest, AHostDeviceCannotReadAnotherDaemonsGpu) {
  LinkUp({Route::kMapped, Route::kTcp});
  EXPECT_EQ(Picked(kTheirGpu, kOurHost), Route::kTcp);
  EXPECT_EQ(Picked(kTheirGpu, kOurGpu), Route::kMapped);
  EXPECT_EQ(Picked(kTheirHost, kOurGpu), Route::kMapped);
  EXPECT_THAT(choice_.WhyNot(Route::kMapped, kTheirGpu, kOurHost), HasSubstr("no copy engine"));
}

TEST_F(RouteChoiceTest, APairOfDevicesThatIsExceptedHasItsOwnWhy) {
  RouteTable table = TableOf({Route::kMapped, Route::kTcp});
  table[static_cast<size_t>(Route::kMapped)].except[CliqueOf(kTheirGpu, kOurGpu)] =
      "no peer access";
  choice_.OnPeerUp(kPeer, table, {kTheirGpu});
  EXPECT_EQ(Picked(kTheirGpu, kOurGpu), Route::kTcp);
  EXPECT_EQ(Picked(kTheirHost, kOurGpu), Route::kMapped);
  EXPECT_EQ(choice_.WhyNot(Route::kMapped, kTheirGpu, kOurGpu), "no peer access");
}

TEST_F(RouteChoiceTest, WhatIsClearlyFasterWinsUntilTheLinkIsANewOne) {
  LinkUp({Route::kMapped, Route::kTcp});
  Measure(Route::kMapped, absl::Microseconds(100));
  Measure(Route::kTcp, absl::Microseconds(90));
  EXPECT_EQ(Picked(), Route::kMapped) << "a little faster is not enough";
  Measure(Route::kTcp, absl::Microseconds(20));
  EXPECT_EQ(Picked(), Route::kTcp);
  EXPECT_EQ(Picked(kTheirHost, kOurHost, kLarge), Route::kMapped) << "not measured for so many";
  choice_.SetByEstimate(false);
  EXPECT_EQ(Picked(), Route::kMapped);
  choice_.SetByEstimate(true);
  LinkUp({Route::kMapped, Route::kTcp});
  EXPECT_EQ(Picked(), Route::kMapped);
}

TEST_F(RouteChoiceTest, WhatWasGivenUpIsTriedAgainNowAndThen) {
  LinkUp({Route::kMapped, Route::kTcp});
  Measure(Route::kMapped, absl::Milliseconds(1));
  Measure(Route::kTcp, absl::Microseconds(20));
  ASSERT_EQ(Picked(), Route::kTcp);
  now_ += absl::Seconds(10);
  EXPECT_EQ(Picked(), Route::kMapped);
  EXPECT_EQ(Picked(kTheirHost, kOurHost, kSmall, 0, /*lasting=*/true), Route::kTcp)
      << "not by what stays on its route";
  choice_.EstimateOf(Route::kMapped, {"", kTheirHost, kOurHost, "k"}).OnLaunch(now_);
  EXPECT_EQ(Picked(), Route::kTcp) << "one at a time";
}

TEST_F(RouteChoiceTest, GpusAreMeasuredApartFromHostDevices) {
  LinkUp({Route::kMapped, Route::kTcp});
  Measure(Route::kMapped, absl::Microseconds(100));
  Measure(Route::kTcp, absl::Microseconds(20));
  EXPECT_EQ(Picked(), Route::kTcp);
  EXPECT_EQ(Picked(kTheirGpu, kOurGpu), Route::kMapped);
}

TEST_F(RouteChoiceTest, NcclIsMissedUntilItsCommunicatorIsOpen) {
  LinkUp({Route::kNccl, Route::kTcp});
  Measure(Route::kNccl, absl::Microseconds(40), kSmall, kTheirGpu, kOurGpu);
  EXPECT_EQ(Picked(kTheirGpu, kOurGpu), Route::kNccl) << "the first of the order, open or not";
  LinkUp({Route::kMapped, Route::kNccl});
  Measure(Route::kNccl, absl::Microseconds(40), kSmall, kTheirGpu, kOurGpu);
  Measure(Route::kMapped, absl::Milliseconds(2), kSmall, kTheirGpu, kOurGpu);
  const RouteChoice::Picked closed = choice_.Pick(now_, kTheirGpu, kOurGpu, kSmall, 0, false);
  EXPECT_EQ(closed.route, Route::kMapped);
  EXPECT_EQ(closed.missed, absl::Microseconds(1960));
  CommRecord& comm = comms_[CliqueOf(kTheirGpu, kOurGpu)];
  comm.ordered = comm.open = true;
  EXPECT_EQ(Picked(kTheirGpu, kOurGpu), Route::kNccl);
  comm.failing = absl::UnavailableError("it is about to end");
  EXPECT_EQ(Picked(kTheirGpu, kOurGpu), Route::kMapped);
}

TEST_F(RouteChoiceTest, BusySmsCostNcclATimeSliceButForWhatLasts) {
  LinkUp({Route::kMapped, Route::kNccl});
  Measure(Route::kNccl, absl::Microseconds(40), kSmall, kTheirGpu, kOurGpu);
  Measure(Route::kMapped, absl::Milliseconds(1), kSmall, kTheirGpu, kOurGpu);
  const Clique clique = CliqueOf(kTheirGpu, kOurGpu);
  comms_[clique].ordered = comms_[clique].open = true;
  ASSERT_EQ(Picked(kTheirGpu, kOurGpu), Route::kNccl);
  choice_.OnSmsBusy(kOurGpu, now_ + absl::Milliseconds(10));
  EXPECT_TRUE(choice_.SmsBusy(now_, clique));
  EXPECT_EQ(Picked(kTheirGpu, kOurGpu), Route::kMapped);
  EXPECT_EQ(Picked(kTheirGpu, kOurGpu, kSmall, 0, /*lasting=*/true), Route::kNccl);
  now_ += absl::Milliseconds(10);
  EXPECT_EQ(Picked(kTheirGpu, kOurGpu), Route::kNccl);
  comms_[clique].sms.OnKernelOver(/*late=*/true, now_);
  EXPECT_EQ(Picked(kTheirGpu, kOurGpu), Route::kMapped);
}

TEST_F(RouteChoiceTest, TheUsualTimeOfAGroupIsMeasuredOrAPrior) {
  const Clique clique = CliqueOf(kTheirGpu, kOurGpu);
  RouteTable table = TableOf({Route::kNccl});
  choice_.OnPeerUp(kPeer, table, {kTheirGpu});
  EXPECT_EQ(choice_.UsualGroup(kPeer, clique), std::nullopt);
  table[static_cast<size_t>(Route::kNccl)].prior = kNcclWithinHost;
  choice_.OnPeerRoutes(kPeer, table);
  EXPECT_EQ(choice_.UsualGroup(kPeer, clique), kNcclWithinHost.latency);
  Measure(Route::kNccl, absl::Microseconds(37), kSmall, kTheirGpu, kOurGpu);
  EXPECT_EQ(choice_.UsualGroup(kPeer, clique), absl::Microseconds(37));
}

TEST_F(RouteChoiceTest, GroupsCanBeMadeOnceNcclWasThereUntilTheLinkIsLost) {
  const Clique clique = CliqueOf(kTheirGpu, kOurGpu);
  LinkUp({Route::kTcp});
  EXPECT_FALSE(choice_.MakesGroups(kPeer, clique));
  choice_.OnPeerRoutes(kPeer, TableOf({Route::kNccl}));
  EXPECT_TRUE(choice_.MakesGroups(kPeer, clique));
  choice_.OnPeerRoutes(kPeer, TableOf({Route::kTcp}));
  EXPECT_TRUE(choice_.MakesGroups(kPeer, clique)) << "groups may be under way";
  choice_.OnPeerLost(kPeer);
  LinkUp({Route::kTcp});
  EXPECT_FALSE(choice_.MakesGroups(kPeer, clique));
}

TEST_F(RouteChoiceTest, ExplainHasEachRouteOfTheOrderWithItsWhy) {
  LinkUp({Route::kMapped, Route::kTcp});
  Measure(Route::kMapped, absl::Microseconds(100));
  const auto received = choice_.Explain(now_, kTheirHost, kOurHost, kSmall);
  ASSERT_THAT(received, SizeIs(4));
  EXPECT_EQ(received[0].reason, "device 2 belongs to node-b");
  EXPECT_TRUE(received[1].chosen);
  EXPECT_EQ(received[1].reason, "first in the order");
  EXPECT_EQ(received[1].time, absl::Microseconds(100));
  EXPECT_EQ(received[3].reason, "later in the order, and not measured enough");
  const auto sent = choice_.Explain(now_, kOurHost, kTheirHost, kSmall);
  EXPECT_EQ(sent[1].reason, "first in the order; what was measured node-b knows, which decides");
  EXPECT_EQ(sent[1].time, std::nullopt);
}

}  // namespace
}  // namespace ferry
