// SPDX-License-Identifier: Apache-2.0
// Route nccl among routes that need no SMs: taken by its prior before it was measured, left while
// the SMs are busy. GPUs of two daemons of one host, as the table says; node-a leads.
#include "two_daemons.h"

namespace ferry {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t kLarge = uint64_t{64} << 20;
constexpr size_t kNcclIndex = static_cast<size_t>(Route::kNccl);

class EnginePriorTest : public testing::Test {
 protected:
  explicit EnginePriorTest(std::vector<Route> order = {Route::kLocal, Route::kMapped, Route::kUcx,
                                                       Route::kNccl})
      : two_(WithOrder(std::move(order)), true) {
    LinkUp(false);
  }
  static TransferEngine::Options WithOrder(std::vector<Route> order) {
    TransferEngine::Options options;
    options.order = std::move(order);
    return options;
  }
  void LinkUp(bool mapped) {
    RouteTable routes = Routes(mapped, true);
    routes[static_cast<size_t>(Route::kUcx)].prior = kStagedWithinHost;
    routes[kNcclIndex].available = true;
    routes[kNcclIndex].prior = kNcclWithinHost;
    for (int i : {kA, kB}) {
      two_.engine(i).OnPeerUp(two_.now, PeerId(1 - i), routes, TwoDaemons::GpusOf(1 - i));
    }
    two_.Run();
  }
  void Warm() {
    EXPECT_TRUE(two_.b().WarmCommunicator(two_.now, {GlobalDeviceId(0), GlobalDeviceId(2)}).ok());
    two_.Run();
    ASSERT_THAT(two_.daemons[kA].opens, SizeIs(1));
  }
  TransferId Post(uint64_t bytes, Route insist = Route::kUnspecified) {
    const std::string key = absl::StrCat("k", next_key_++);
    TransferSpec send = SpecOf(Side::kSend, key, 0, 2, bytes);
    send.route = insist;
    two_.Post(std::move(send));
    const TransferId receive = two_.Post(SpecOf(Side::kReceive, key, 0, 2, bytes));
    two_.Run();
    return receive;
  }
  // Moves `bytes` from node-a to node-b in `took`; by which route.
  Route Move(absl::Duration took, uint64_t bytes = kLarge, Route insist = Route::kUnspecified) {
    const TransferId receive = Post(bytes, insist);
    two_.now += took;
    Finish();
    for (const Ended& ended : two_.daemons[kB].ended) {
      if (ended.transfer != receive) continue;
      EXPECT_TRUE(ended.status.ok()) << ended.status;
      return ended.route;
    }
    ADD_FAILURE() << "not over";
    return Route::kUnspecified;
  }
  // Answers all that runs, at once.
  void Finish() {
    for (bool more = true; more;) {
      more = false;
      for (int i : {kA, kB}) {
        for (; launches_[i] < two_.daemons[i].launches.size(); more = true) {
          const Launch& launch = two_.daemons[i].launches[launches_[i]++];
          two_.engine(i).OnLaunchDone(two_.now, launch.transfer, launch.attempt, absl::OkStatus());
        }
        for (; groups_[i] < two_.daemons[i].groups.size(); more = true) {
          two_.engine(i).OnGroupDone(two_.now, two_.daemons[i].groups[groups_[i]++].ticket,
                                     absl::OkStatus());
        }
      }
      two_.Run();
    }
  }
  RouteOption Explain(Route route, uint64_t bytes) {
    const auto options =
        two_.b().view().Explain(two_.now, GlobalDeviceId(0), GlobalDeviceId(2), bytes);
    for (const RouteOption& option : *options) {
      if (option.route == route) return option;
    }
    return {};
  }

  TwoDaemons two_;
  int next_key_ = 0;
  size_t launches_[2] = {}, groups_[2] = {};
};

TEST_F(EnginePriorTest, NcclIsTakenOverStagedUcxThoughNobodyNamesIt) {
  int before = 0;
  while (Move(absl::Milliseconds(8)) == Route::kUcx && before < 100) {
    EXPECT_THAT(two_.daemons[kA].opens, SizeIs(before < 6 ? 0 : 1)) << before;
    ++before;
  }
  // None waits for the opening, which 7 transfers of 7.3 ms more each are worth.
  EXPECT_EQ(before, 7);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Move(absl::Microseconds(500)), Route::kNccl);
  EXPECT_THAT(two_.daemons[kA].opens, SizeIs(1));
  EXPECT_TRUE(Explain(Route::kNccl, kLarge).measured);
}

TEST_F(EnginePriorTest, SmallTransfersAreNoReasonToOpenACommunicator) {
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(Move(absl::Microseconds(200), 8), Route::kUcx);
  EXPECT_THAT(two_.daemons[kA].opens, IsEmpty());
}

TEST_F(EnginePriorTest, MappedIsNotLeftForAPrior) {
  LinkUp(true);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Move(absl::Seconds(1)), Route::kMapped);
  EXPECT_THAT(two_.daemons[kA].opens, IsEmpty());
}

TEST_F(EnginePriorTest, BetweenHostsNothingIsTriedUnnamed) {
  RouteTable routes = Routes(false, true);
  routes[kNcclIndex].available = true;
  two_.b().OnPeerRoutes(PeerId(kA), routes);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Move(absl::Milliseconds(80)), Route::kUcx);
  EXPECT_THAT(two_.daemons[kA].opens, IsEmpty());
}

TEST_F(EnginePriorTest, APriorThatIsWrongCostsFourTransfers) {
  Warm();
  int tried = 0;
  for (int i = 0; i < 200; ++i) tried += Move(absl::Milliseconds(8)) == Route::kNccl ? 1 : 0;
  EXPECT_EQ(tried, static_cast<int>(RouteEstimate::kEnough));
  EXPECT_THAT(Explain(Route::kNccl, kLarge).reason, HasSubstr("not measured to be clearly faster"));
}

TEST_F(EnginePriorTest, UntilItIsMeasuredOneTransferAtATimeTakesItAndNoHugeOne) {
  Warm();
  EXPECT_EQ(Move(absl::Milliseconds(8)), Route::kUcx);  // which is looked at again, as ever
  EXPECT_EQ(Move(absl::Milliseconds(8), uint64_t{2} << 30), Route::kUcx);
  for (int i = 0; i < 5; ++i) Post(kLarge);
  EXPECT_THAT(two_.daemons[kB].groups, SizeIs(1));
  EXPECT_THAT(two_.daemons[kB].launches, SizeIs(2 + 4));
  Finish();
}

TEST_F(EnginePriorTest, AnOpeningThatFailedIsTriedAgainForTwiceAsMuch) {
  two_.opens_well = false;
  const auto until_opened = [&] {
    const size_t opens = two_.daemons[kA].opens.size();
    int moved = 0;
    while (two_.daemons[kA].opens.size() == opens && moved < 100) {
      EXPECT_EQ(Move(absl::Milliseconds(8)), Route::kUcx);
      two_.Advance(absl::Milliseconds(500));
      ++moved;
    }
    return moved;
  };
  EXPECT_EQ(until_opened(), 7);
  const CommunicatorOpen open = two_.daemons[kA].opens.back();
  two_.a().OnCommunicatorFailed(two_.now, open.clique, open.attempt, RouteRefused());
  two_.Run();
  EXPECT_GE(until_opened(), 13);
}

TEST_F(EnginePriorTest, ExplainSaysWhatIsAPriorAndWhatIsMissed) {
  EXPECT_EQ(Move(absl::Milliseconds(8)), Route::kUcx);
  const auto ucx = Explain(Route::kUcx, kLarge), nccl = Explain(Route::kNccl, kLarge);
  EXPECT_TRUE(ucx.chosen);
  EXPECT_FALSE(ucx.measured);
  EXPECT_EQ(ucx.bytes_per_second, kStagedWithinHost.bytes_per_second);
  EXPECT_FALSE(nccl.measured);
  EXPECT_EQ(nccl.latency, kNcclWithinHost.latency);
  EXPECT_THAT(nccl.reason, HasSubstr("its communicator is not open; transfers have missed it for"));
  Warm();
  Move(absl::Milliseconds(8));
  EXPECT_TRUE(Explain(Route::kNccl, kLarge).chosen);
  EXPECT_THAT(Explain(Route::kNccl, kLarge).reason, HasSubstr("expected to be clearly faster"));
  EXPECT_EQ(Explain(Route::kUcx, kLarge).reason, "expected to be clearly slower");
}

// Small transfers of an application that has put nccl before ucx.
class EngineSmLoadTest : public EnginePriorTest {
 protected:
  EngineSmLoadTest() : EnginePriorTest({Route::kLocal, Route::kNccl, Route::kUcx}) {
    for (int i = 0; i < 8; ++i) EXPECT_EQ(Small(), Route::kNccl);
  }
  Route Small(absl::Duration took = absl::Microseconds(100)) { return Move(took, 8); }
};

TEST_F(EngineSmLoadTest, SmallTransfersLeaveBusySmsAndReturn) {
  EXPECT_EQ(Small(absl::Microseconds(1900)), Route::kNccl);  // so it is found out
  EXPECT_TRUE(Explain(Route::kNccl, 8).sms_busy);
  EXPECT_THAT(Explain(Route::kNccl, 8).reason, HasSubstr("the SMs are busy, which costs 2 ms"));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Small(), Route::kUcx);
  EXPECT_EQ(Move(absl::Milliseconds(1)), Route::kNccl);  // a large one hardly notices
  two_.Advance(absl::Milliseconds(10));
  EXPECT_FALSE(Explain(Route::kNccl, 8).sms_busy);
  // The late one is not the route's latency.
  EXPECT_EQ(Explain(Route::kNccl, 8).latency, absl::Microseconds(100));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Small(), Route::kNccl);
}

TEST_F(EngineSmLoadTest, BesideALastingLoadOneTransferASecondIsLate) {
  int late = 0;
  for (int i = 0; i < 10'000; ++i) {
    two_.now += absl::Milliseconds(1);
    const size_t groups = two_.daemons[kB].groups.size();
    Post(8);
    const bool nccl = two_.daemons[kB].groups.size() > groups;
    two_.now += nccl ? absl::Microseconds(1900) : absl::Microseconds(150);
    Finish();
    if (i > 2000) late += nccl ? 1 : 0;
  }
  EXPECT_GE(late, 7);
  EXPECT_LE(late, 10);
}

TEST_F(EngineSmLoadTest, WhatOtherKernelsOfALaneFoundCountsForItsGpu) {
  two_.b().OnSmsBusy(two_.now, GlobalDeviceId(3), two_.now + absl::Seconds(1));
  EXPECT_EQ(Small(), Route::kNccl);
  two_.b().OnSmsBusy(two_.now, GlobalDeviceId(2), two_.now + absl::Seconds(1));
  EXPECT_EQ(Small(), Route::kUcx);
  two_.Advance(absl::Seconds(1));
  EXPECT_EQ(Small(), Route::kNccl);
}

TEST_F(EngineSmLoadTest, LargeGroupsSayNothingOfSms) {
  EXPECT_EQ(Move(absl::Milliseconds(10)), Route::kNccl);
  EXPECT_FALSE(Explain(Route::kNccl, 8).sms_busy);
}

TEST_F(EngineSmLoadTest, ANewLinkForgetsIt) {
  Small(absl::Milliseconds(2));
  EXPECT_TRUE(Explain(Route::kNccl, 8).sms_busy);
  two_.LinkLost();
  LinkUp(false);
  EXPECT_FALSE(Explain(Route::kNccl, 8).sms_busy);
}

// A load passes, the route of what is prepared stays.
TEST_F(EngineSmLoadTest, WhatIsPreparedIsNotRoutedByTheLoadOfTheMoment) {
  two_.b().OnSmsBusy(two_.now, GlobalDeviceId(2), two_.now + absl::Seconds(1));
  EXPECT_EQ(Small(), Route::kUcx);
  for (Side side : {Side::kSend, Side::kReceive}) {
    TransferSpec spec = SpecOf(side, "prepared", 0, 2, 8);
    spec.prepared = true;
    two_.Post(std::move(spec));
  }
  two_.Run();
  EXPECT_EQ(two_.daemons[kB].launches.back().route, Route::kNccl);
}

}  // namespace
}  // namespace ferry
