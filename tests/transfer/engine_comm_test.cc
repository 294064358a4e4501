// SPDX-License-Identifier: Apache-2.0
// Communicators of route nccl between two daemons: how they are opened, closed and aborted.
#include "engine_groups.h"

namespace ferry {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class EngineCommTest : public EngineGroups {};

TEST_F(EngineCommTest, OneOpeningServesBothDirections) {
  Pair("up");
  Pair("back", true);
  two_.Run();
  for (int node : {kA, kB}) {
    ASSERT_THAT(two_.daemons[node].opens, SizeIs(1));
    const CommunicatorOpen& open = two_.daemons[node].opens[0];
    EXPECT_EQ(open.attempt, 1u);
    EXPECT_EQ(open.device, GlobalDeviceId(node == kA ? 0 : 2));
    EXPECT_EQ(open.unique_id, node == kA ? "" : "unique");
  }
  for (int node : {kA, kB}) Done(node);
  two_.ExpectNothingLeft();
}

TEST_F(EngineCommTest, OnlyWhatACliqueCanHaveIsWarmed) {
  const auto warm = [&](uint64_t low, uint64_t high) {
    return two_.a().WarmCommunicator(two_.now, {GlobalDeviceId(low), GlobalDeviceId(high)});
  };
  EXPECT_THAT(warm(0, 1), Says("one device must be ours, the other one a peer's"));
  EXPECT_THAT(warm(2, 3), Says("one device must be ours, the other one a peer's"));
  EXPECT_THAT(warm(0, 99), Says("one device must be ours, the other one a peer's"));
  EXPECT_THAT(warm(0, 4), Says("no link to node-c"));
  RouteTable routes = Routes(false, true);
  routes[static_cast<size_t>(Route::kNccl)] = {
      true, "", {{Clique{GlobalDeviceId(0), GlobalDeviceId(2)}, "both are one GPU"}}};
  two_.a().OnPeerRoutes(PeerId(kB), routes);
  EXPECT_THAT(warm(0, 2), Says("both are one GPU"));
  EXPECT_TRUE(warm(1, 2).ok());
}

TEST_F(EngineCommTest, WhatCannotBeOpenedSendsAllThatWaitsToTheNextRoute) {
  two_.opens_well = false;
  for (int node : {kA, kB}) {  // that says so
    const size_t opens = two_.daemons[kA].opens.size(), launches = two_.daemons[kA].launches.size();
    const auto [send, receive] = Pair("k");
    const auto [back_send, back_receive] = Pair("back", true);
    two_.Run();
    EXPECT_THAT(Groups(kA), IsEmpty());
    ASSERT_THAT(two_.daemons[kA].opens, SizeIs(opens + 1));
    const CommunicatorOpen open = two_.daemons[kA].opens.back();
    two_.a().OnCommunicatorId(two_.now, open.clique, open.attempt, "unique");
    two_.Run();
    two_.engine(node).OnCommunicatorFailed(two_.now, open.clique, open.attempt, RouteRefused());
    two_.Run();
    for (int end : {kA, kB}) {
      EXPECT_FALSE(Ends(end).back().status.ok());
      EXPECT_EQ(Ends(end).back().attempt, open.attempt);
      ASSERT_THAT(two_.daemons[end].launches, SizeIs(launches + 2));
      for (size_t i : {launches, launches + 1}) {
        const Launch launch = two_.daemons[end].launches[i];
        EXPECT_EQ(launch.route, Route::kUcx);
        two_.engine(end).OnLaunchDone(two_.now, launch.transfer, launch.attempt, absl::OkStatus());
      }
    }
    two_.Run();
    EXPECT_TRUE(two_.StatusOf(kA, send).ok());
    EXPECT_TRUE(two_.StatusOf(kB, back_send).ok());
    EXPECT_TRUE(two_.StatusOf(kA, back_receive).ok());
    two_.ExpectNothingLeft();
    two_.Advance(absl::Seconds(10));
  }
}

TEST_F(EngineCommTest, AnOpeningThatHangsIsEndedByItsDeadline) {
  two_.opens_well = false;
  TransferSpec spec = SpecOf(Side::kReceive, "k", 0, 2);
  spec.route = Route::kNccl;
  const TransferId send = two_.Post(SpecOf(Side::kSend, "k", 0, 2));
  const TransferId receive = two_.Post(spec);
  two_.Run();
  two_.Advance(absl::Seconds(29));
  EXPECT_THAT(Ends(kA), IsEmpty());
  two_.Advance(absl::Seconds(2));
  EXPECT_THAT(Ends(kA), SizeIs(1));
  const absl::Status why = two_.StatusOf(kB, receive);
  EXPECT_THAT(why, Fails(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable));
  EXPECT_THAT(why, Says("opening attempt 1 of the communicator of the clique of devices 0 and 2: "
                        "not open within 30 s"));
  EXPECT_FALSE(two_.StatusOf(kA, send).ok());
  two_.ExpectNothingLeft();
}

TEST_F(EngineCommTest, AnIdleCommunicatorIsEvictedFromEitherEnd) {
  const Clique clique{GlobalDeviceId(0), GlobalDeviceId(2)};
  for (int node : {kA, kB}) {
    Pair("k");
    two_.Run();
    two_.engine(node).EvictCommunicator(two_.now, clique);  // busy
    two_.Run();
    for (int end : {kA, kB}) Done(end);
    const size_t before = Ends(kA).size();
    two_.engine(node).EvictCommunicator(two_.now, clique);
    two_.Run();
    for (int end : {kA, kB}) {
      ASSERT_THAT(Ends(end), SizeIs(before + 1));
      EXPECT_TRUE(Ends(end).back().status.ok());
      EXPECT_EQ(Ends(end).back().attempt, before + 1);
    }
  }
  two_.ExpectNothingLeft();
}

// NCCL may need the leader's rank for what the follower's has still to do.
TEST_F(EngineCommTest, ACommunicatorIsClosedWhenTheFollowersGroupsAreOverToo) {
  const Clique clique{GlobalDeviceId(0), GlobalDeviceId(2)};
  const auto close = [&] {  // when it is idle at the leader
    Done(kA);
    two_.a().EvictCommunicator(two_.now, clique);
    two_.Run();
  };
  Pair("first");
  two_.Run();
  close();
  for (int end : {kA, kB}) {
    EXPECT_THAT(Ends(end), IsEmpty());
    ASSERT_THAT(two_.daemons[end].closings, SizeIs(1));
    EXPECT_EQ(two_.daemons[end].closings[0].attempt, 1u);
  }
  Pair("second");  // goes on the next one meanwhile
  two_.Run();
  EXPECT_EQ(Groups(kB).back().attempt, 2u);
  Done(kB);
  for (int end : {kA, kB}) {
    ASSERT_THAT(Ends(end), SizeIs(1));
    EXPECT_TRUE(Ends(end)[0].status.ok());
    EXPECT_EQ(Ends(end)[0].attempt, 1u);
  }
  close();
  Done(kB, absl::InternalError("the kernel failed"));
  for (int end : {kA, kB}) {
    ASSERT_THAT(Ends(end), SizeIs(2));
    EXPECT_EQ(Ends(end)[1].status.ok(), end == kA);
    EXPECT_EQ(Ends(end)[1].attempt, 2u);
  }
  // What the follower had to tell crosses the leader's wish.
  Pair("third");
  two_.Run();
  Done(kA);
  two_.b().OnCommunicatorFailed(two_.now, clique, 3, absl::AbortedError("NCCL says so"));
  two_.a().EvictCommunicator(two_.now, clique);
  two_.Run();
  for (int end : {kA, kB}) {
    ASSERT_THAT(Ends(end), SizeIs(3));
    EXPECT_EQ(Ends(end)[2].status.ok(), end == kA);
  }
  Done(kB, absl::AbortedError("aborted"));
  Pair("fourth");
  two_.Run();
  close();
  two_.LinkLost();
  two_.Run();
  for (int end : {kA, kB}) {
    ASSERT_THAT(Ends(end), SizeIs(4));
    EXPECT_EQ(ReasonOf(Ends(end)[3].status), Reason::kPeerUnreachable);
    EXPECT_EQ(Ends(end)[3].attempt, 4u);
  }
  Done(kB, absl::AbortedError("aborted"));
  two_.ExpectNothingLeft();
}

// The follower's groups would hang on what the leader has aborted.
TEST_F(EngineCommTest, WhatIsAbortedWhileItClosesEndsAtBothEnds) {
  const Clique clique{GlobalDeviceId(0), GlobalDeviceId(2)};
  uint32_t attempt = 0;
  for (int node : {kA, kB}) {
    const auto [send, receive] = Pair("k");
    two_.Run();
    Done(kA);
    two_.a().EvictCommunicator(two_.now, clique);
    const auto [send2, receive2] = Pair("next");  // on the next one
    two_.Run();
    ++attempt;
    two_.engine(node).OnCommunicatorFailed(two_.now, clique, attempt,
                                           absl::AbortedError("an operator"));
    two_.Run();
    for (int end : {kA, kB}) EXPECT_EQ(Ends(end).back().attempt, attempt);
    EXPECT_FALSE(Ends(node).back().status.ok());
    EXPECT_FALSE(Ends(kB).back().status.ok());
    Done(kB, absl::AbortedError("aborted"));
    EXPECT_THAT(two_.StatusOf(kB, receive), Says("an operator"));
    ++attempt;
    for (int end : {kA, kB}) {
      EXPECT_EQ(Groups(end).back().attempt, attempt);
      Done(end);
    }
    EXPECT_TRUE(two_.StatusOf(kA, send2).ok());
    EXPECT_TRUE(two_.StatusOf(kB, receive2).ok());
    two_.a().EvictCommunicator(two_.now, clique);
    two_.Run();
  }
  two_.ExpectNothingLeft();
}

TEST_F(EngineCommTest, ABusyCommunicatorIsEvictedWhenItsGroupsAreOver) {
  const Clique clique{GlobalDeviceId(0), GlobalDeviceId(2)};
  uint32_t attempt = 0;
  for (int node : {kA, kB}) {
    const auto [send, receive] = Pair("large", false, 25'000);
    two_.Run();
    ++attempt;
    two_.engine(node).EvictCommunicator(two_.now, clique, /*busy=*/true);
    two_.Run();
    two_.Advance(absl::Milliseconds(3));
    const size_t before = Ends(kA).size(), launched = Groups(kA).size();
    while (answered_[kA] < launched) {
      EXPECT_THAT(Ends(kA), SizeIs(before));
      EXPECT_THAT(Groups(kA), SizeIs(launched));  // none is cut meanwhile
      for (int end : {kA, kB}) Done(end);
    }
    for (int end : {kA, kB}) {
      ASSERT_THAT(Ends(end), SizeIs(before + 1));
      EXPECT_TRUE(Ends(end).back().status.ok());
      EXPECT_EQ(Ends(end).back().attempt, attempt);
    }
    ++attempt;
    while (answered_[kA] < Groups(kA).size()) {
      EXPECT_EQ(Groups(kA).back().attempt, attempt);
      for (int end : {kA, kB}) Done(end);
    }
    EXPECT_TRUE(two_.StatusOf(kA, send).ok());
    EXPECT_TRUE(two_.StatusOf(kB, receive).ok());
    two_.engine(kA).EvictCommunicator(two_.now, clique);
    two_.Run();
  }
  two_.ExpectNothingLeft();
}

}  // namespace
}  // namespace ferry
