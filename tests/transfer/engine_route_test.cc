// SPDX-License-Identifier: Apache-2.0
// Which route is taken, by order and by what was measured; and with which priority.
#include "transfer/route_estimate.h"
#include "two_daemons.h"

namespace ferry {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSize = uint64_t{4} << 20;

class EngineRouteTest : public testing::Test {
 protected:
  explicit EngineRouteTest(TransferEngine::Options options = {}) : two_(std::move(options)) {
    two_.LinkUp();
  }
  // Moves `bytes` from node-a to node-b in `took`; the route it was launched on first.
  Route Move(absl::Duration took, uint64_t bytes = kSize, Route insist = Route::kUnspecified) {
    const std::string key = absl::StrCat("k", next_key_++);
    TransferSpec send = SpecOf(Side::kSend, key, 0, 2, bytes);
    send.route = insist;
    const TransferId from = two_.Post(std::move(send));
    const TransferId to = two_.Post(SpecOf(Side::kReceive, key, 0, 2, bytes));
    two_.Run();
    const Route route = two_.daemons[kB].launches.back().route;
    two_.now += took;
    two_.Answer(kB);
    if (route == Route::kUcx) two_.Answer(kA);
    EXPECT_TRUE(two_.StatusOf(kA, from).ok());
    EXPECT_TRUE(two_.StatusOf(kB, to).ok());
    return route;
  }
  void Measure(Route route, absl::Duration took, uint64_t bytes = kSize) {
    for (uint32_t i = 0; i < RouteEstimate::kEnough; ++i)
      EXPECT_EQ(Move(took, bytes, route), route);
  }
  TwoDaemons two_;
  int next_key_ = 0;
};

TEST_F(EngineRouteTest, WithoutMeasurementsTheOrderDecides) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Move(absl::Seconds(1)), Route::kMapped);
}

TEST_F(EngineRouteTest, AClearlyFasterRouteIsTakenForSizesItWasMeasuredAt) {
  Measure(Route::kMapped, absl::Milliseconds(10));
  Measure(Route::kUcx, absl::Milliseconds(2));
  EXPECT_EQ(Move(absl::Milliseconds(2)), Route::kUcx);
  EXPECT_EQ(Move(absl::Milliseconds(2), 64), Route::kMapped);  // latency was not measured
}

TEST_F(EngineRouteTest, ALittleFasterIsNotEnough) {
  Measure(Route::kMapped, absl::Milliseconds(10));
  Measure(Route::kUcx, absl::Milliseconds(9));
  EXPECT_EQ(Move(absl::Milliseconds(10)), Route::kMapped);
}

TEST_F(EngineRouteTest, ARouteThatWasNeverMeasuredDoesNotReplaceOneThatWas) {
  Measure(Route::kMapped, absl::Seconds(10));
  EXPECT_EQ(Move(absl::Seconds(10)), Route::kMapped);
}

TEST_F(EngineRouteTest, AnInsistedRouteIsTakenWhateverWasMeasured) {
  Measure(Route::kMapped, absl::Milliseconds(10));
  Measure(Route::kUcx, absl::Milliseconds(2));
  EXPECT_EQ(Move(absl::Milliseconds(10), kSize, Route::kMapped), Route::kMapped);
}

TEST_F(EngineRouteTest, NowAndThenOneTransferSeesWhetherTheOrderIsRightAgain) {
  Measure(Route::kMapped, absl::Milliseconds(10));
  Measure(Route::kUcx, absl::Milliseconds(2));
  int probes = 0;
  for (int i = 0; i < 60; ++i) {
    two_.Advance(absl::Seconds(1));
    probes += Move(absl::Milliseconds(2)) == Route::kMapped ? 1 : 0;
  }
  EXPECT_GE(probes, 4);
  EXPECT_LE(probes, 6);
  for (int i = 0; i < 600; ++i) {  // each was as fast as the other route is
    two_.Advance(absl::Seconds(1));
    Move(absl::Milliseconds(2));
  }
  EXPECT_EQ(Move(absl::Milliseconds(2)), Route::kMapped);
  EXPECT_EQ(Move(absl::Milliseconds(2)), Route::kMapped);
}

TEST_F(EngineRouteTest, OnlyOneTransferAtATimeProbesAndNoHugeOne) {
  Measure(Route::kMapped, absl::Milliseconds(10));
  Measure(Route::kUcx, absl::Milliseconds(2));
  two_.Advance(absl::Hours(1));
  EXPECT_EQ(Move(absl::Seconds(1), uint64_t{8} << 30), Route::kUcx);
  for (int i = 0; i < 10; ++i) {
    const std::string key = absl::StrCat("probe", i);
    two_.Post(SpecOf(Side::kSend, key, 0, 2, kSize));
    two_.Post(SpecOf(Side::kReceive, key, 0, 2, kSize));
  }
  two_.Run();
  const auto& launches = two_.daemons[kB].launches;
  EXPECT_EQ(std::count_if(launches.end() - 10, launches.end(),
                          [](const Launch& launch) { return launch.route == Route::kMapped; }),
            1);
}

TEST_F(EngineRouteTest, AnArenaThatWasNotMappedIsTriedAgainOnlyLater) {
  const std::vector<Launch>& launches = two_.daemons[kB].launches;
  bool maps = false;
  const auto routes_of = [&](const std::string& key) {
    const size_t before = launches.size();
    two_.Send(key);
    two_.Receive(key);
    two_.Run();
    if (launches.back().route == Route::kMapped && !maps) {
      two_.Answer(kB, RouteRefused());
      two_.Run();
    }
    std::vector<Route> taken;
    for (size_t i = before; i < launches.size(); ++i) taken.push_back(launches[i].route);
    two_.Answer(kA);
    two_.Answer(kB);
    two_.Run();
    return taken;
  };
  const std::vector<Route> tried = {Route::kMapped, Route::kUcx}, known = {Route::kUcx};
  const std::vector<Route> mapped = {Route::kMapped};
  EXPECT_EQ(routes_of("first"), tried);
  EXPECT_EQ(routes_of("second"), known);
  EXPECT_THAT(two_.daemons[kB].fallbacks, testing::SizeIs(1));
  two_.b().OnPeerRoutes(PeerId(kA), Routes(true, true));
  EXPECT_EQ(routes_of("told anew"), tried);
  EXPECT_EQ(routes_of("known again"), known);
  two_.Advance(absl::Seconds(9));
  EXPECT_EQ(routes_of("soon"), known);
  two_.Advance(absl::Seconds(2));
  EXPECT_EQ(routes_of("later"), tried);
  EXPECT_EQ(routes_of("soon after"), known);

  two_.Advance(absl::Seconds(21));
  maps = true;
  EXPECT_EQ(routes_of("it works now"), mapped);
  EXPECT_EQ(routes_of("from now on"), mapped);
}

TEST_F(EngineRouteTest, ANewLinkIsMeasuredAnew) {
  Measure(Route::kMapped, absl::Milliseconds(10));
  Measure(Route::kUcx, absl::Milliseconds(2));
  two_.LinkLost();
  two_.LinkUp();
  EXPECT_EQ(Move(absl::Milliseconds(10)), Route::kMapped);
}

TEST_F(EngineRouteTest, ExplainShowsWhatWasMeasuredAndWhatItLeadsTo) {
  Measure(Route::kMapped, absl::Milliseconds(10));
  Measure(Route::kUcx, absl::Milliseconds(2));
  auto options = two_.b().view().Explain(two_.now, GlobalDeviceId(0), GlobalDeviceId(2), kSize);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ((*options)[1].time, absl::Milliseconds(10));
  EXPECT_FALSE((*options)[1].chosen);
  EXPECT_EQ((*options)[1].reason, "measured to be clearly slower");
  EXPECT_TRUE((*options)[2].chosen);
  EXPECT_NEAR(*(*options)[2].bytes_per_second, kSize / 0.002, 1);
  EXPECT_EQ((*options)[2].latency, std::nullopt);
  options = two_.b().view().Explain(two_.now, GlobalDeviceId(0), GlobalDeviceId(2), 8);
  EXPECT_TRUE((*options)[1].chosen);
  EXPECT_THAT((*options)[2].reason, HasSubstr("not measured enough"));
  options = two_.a().view().Explain(two_.now, GlobalDeviceId(0), GlobalDeviceId(2), kSize);
  EXPECT_EQ((*options)[2].time, std::nullopt);  // node-b decides
}

class EngineFixedOrderTest : public EngineRouteTest {
 protected:
  static TransferEngine::Options ByOrder() {
    TransferEngine::Options options;
    options.bounds.by_estimate = false;
    return options;
  }
  EngineFixedOrderTest() : EngineRouteTest(ByOrder()) {}
};

TEST_F(EngineFixedOrderTest, TheOrderHoldsWhateverWasMeasured) {
  Measure(Route::kMapped, absl::Milliseconds(10));
  Measure(Route::kUcx, absl::Milliseconds(2));
  EXPECT_EQ(Move(absl::Milliseconds(10)), Route::kMapped);
}

TEST_F(EngineRouteTest, TheReceivesPriorityCountsUnlessItHasNone) {
  for (const auto& [send, receive, counts] :
       {std::tuple(0, 0, 0), {7, 0, 7}, {7, -3, -3}, {0, 9, 9}}) {
    const std::string key = absl::StrCat("k", next_key_++);
    TransferSpec from = SpecOf(Side::kSend, key, 0, 2);
    from.priority = send;
    from.route = Route::kUcx;
    TransferSpec to = SpecOf(Side::kReceive, key, 0, 2);
    to.priority = receive;
    to.prompt = receive == 9;
    two_.Post(std::move(from));
    two_.Post(std::move(to));
    two_.Run();
    EXPECT_EQ(two_.daemons[kA].launches.back().priority, counts);
    EXPECT_EQ(two_.daemons[kB].launches.back().priority, counts);
    EXPECT_EQ(two_.daemons[kB].launches.back().prompt, receive == 9);
  }
}

}  // namespace
}  // namespace ferry
