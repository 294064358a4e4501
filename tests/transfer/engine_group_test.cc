// SPDX-License-Identifier: Apache-2.0
// Groups of route nccl between two daemons.
#include "engine_groups.h"

namespace ferry {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class EngineGroupTest : public EngineGroups {};

TEST_F(EngineGroupTest, BothEndsLaunchTheSameGroup) {
  const auto [send, receive] = Pair("up");
  const auto [back_send, back_receive] = Pair("back", true);
  two_.Deliver(kA);
  two_.Take(kB);
  for (PeerMessage& message : two_.daemons[kB].to_other) {  // one batch of calls
    two_.a().OnMessage(two_.now, PeerId(kB), std::move(message));
  }
  two_.daemons[kB].to_other.clear();
  two_.Run();
  for (int node : {kA, kB}) {
    ASSERT_THAT(Groups(node), SizeIs(1));
    const GroupLaunch& group = Groups(node)[0];
    EXPECT_EQ(group.clique, (Clique{GlobalDeviceId(0), GlobalDeviceId(2)}));
    EXPECT_EQ(group.attempt, 1u);
    EXPECT_EQ(group.number, 1u);
    EXPECT_EQ(group.device, GlobalDeviceId(node == kA ? 0 : 2));
    ASSERT_THAT(group.chunks, SizeIs(2));
    EXPECT_NE(group.chunks[0].side, group.chunks[1].side);
    EXPECT_EQ(group.chunks[0].bytes, 4096u);
  }
  EXPECT_NE(Groups(kA)[0].chunks[0].side, Groups(kB)[0].chunks[0].side);
  Done(kA);
  EXPECT_FALSE(two_.IsOver(kB, receive));
  Done(kB);
  EXPECT_TRUE(two_.StatusOf(kA, send).ok());
  EXPECT_TRUE(two_.StatusOf(kB, receive).ok());
  EXPECT_TRUE(two_.StatusOf(kB, back_send).ok());
  EXPECT_TRUE(two_.StatusOf(kA, back_receive).ok());
  EXPECT_THAT(Ends(kA), IsEmpty());
  two_.ExpectNothingLeft();
}

TEST_F(EngineGroupTest, TheLeaderWaitsForTheFollowersGrant) {
  Warm(kA);
  Pair("k");
  while (Groups(kB).empty()) {
    ASSERT_TRUE(two_.Deliver(kA) || two_.Deliver(kB));
    two_.Take(kB);
  }
  two_.Take(kA);
  EXPECT_THAT(Groups(kA), IsEmpty());
  two_.Run();
  EXPECT_THAT(Groups(kA), SizeIs(1));
}

TEST_F(EngineGroupTest, ALargeTransferTravelsInChunksTwoDeep) {
  const auto [send, receive] = Pair("large", false, 25'000);
  two_.Run();
  EXPECT_THAT(Groups(kA), SizeIs(2));
  EXPECT_EQ(Groups(kA)[0].chunks[0].bytes, 8192u);
  EXPECT_EQ(Groups(kA)[1].chunks[0].offset, 8192u);
  two_.Advance(absl::Milliseconds(3));
  Done(kA);
  EXPECT_THAT(Groups(kB), SizeIs(2));  // the third waits for the follower's lane
  Done(kB);
  ASSERT_THAT(Groups(kB), SizeIs(3));
  for (int node : {kA, kA, kB, kB}) Done(node);
  EXPECT_TRUE(two_.StatusOf(kA, send).ok());
  EXPECT_TRUE(two_.StatusOf(kB, receive).ok());
  two_.ExpectNothingLeft();
}

// What was measured says how long a group may be.
TEST_F(EngineGroupTest, LargeOnesInOnePieceTravelInLongGroups) {
  Pair("measured", false, 10'000);
  two_.Run();
  two_.Advance(absl::Milliseconds(1));  // 10 MB/s: 20'000 bytes in the time of a group
  for (int node : {kA, kB}) Done(node);
  const auto [send, receive] = Pair("large", false, 70'000);
  two_.Run();
  ASSERT_THAT(Groups(kA), SizeIs(3));
  for (int i : {1, 2}) {
    ASSERT_THAT(Groups(kA)[i].chunks, SizeIs(1));
    EXPECT_EQ(Groups(kA)[i].chunks[0].bytes, 5 * 4096u);  // a quarter, in chunks
  }
  Pair("small", false, 10);
  two_.Run();
  two_.Advance(absl::Milliseconds(3));
  for (int node : {kA, kB}) Done(node);
  ASSERT_THAT(Groups(kA), SizeIs(4));
  ASSERT_THAT(Groups(kA)[3].chunks, SizeIs(2));  // which is short
  EXPECT_EQ(Groups(kA)[3].chunks[1].bytes, 8192u);
  while (answered_[kB] < Groups(kB).size()) {
    for (int node : {kA, kB}) Done(node);
  }
  EXPECT_TRUE(two_.StatusOf(kA, send).ok());
  EXPECT_TRUE(two_.StatusOf(kB, receive).ok());
  two_.ExpectNothingLeft();
}

TEST_F(EngineGroupTest, LargeOnesInSeveralPiecesHaveNoMoreThanCanBeStaged) {
  Pair("measured", false, 10'000);
  two_.Run();
  two_.Advance(absl::Milliseconds(1));
  for (int node : {kA, kB}) Done(node);
  for (const Side cut : {Side::kSend, Side::kReceive}) {
    for (const Side side : {Side::kSend, Side::kReceive}) {
      TransferSpec spec = SpecOf(side, "cut", 0, 2, 20'000);
      if (side == cut) {
        spec.layout = Layout({{ArenaId(10), 0, 10'000}, {ArenaId(10), 15'000, 10'000}});
      }
      two_.Post(spec);
    }
    two_.Run();
    EXPECT_EQ(Groups(kA).back().chunks[0].bytes, 10'000u);
    while (answered_[kB] < Groups(kB).size()) {
      for (int node : {kA, kB}) Done(node);
    }
  }
  two_.ExpectNothingLeft();
}

TEST_F(EngineGroupTest, AFailedGroupEndsItsAttemptAndWhatIsOnItOnly) {
  const auto [send, receive] = Pair("first");
  two_.Run();
  const auto [send2, receive2] = Pair("second");
  two_.Run();
  two_.Advance(absl::Milliseconds(3));
  ASSERT_THAT(Groups(kB), SizeIs(2));
  const auto [send3, receive3] = Pair("third");
  two_.Run();
  Done(kB, absl::InternalError("the kernel failed"));
  ASSERT_THAT(Ends(kA), SizeIs(1));
  ASSERT_THAT(Ends(kB), SizeIs(1));
  EXPECT_EQ(Ends(kA)[0].attempt, 1u);
  EXPECT_THAT(two_.StatusOf(kB, receive), Says("the kernel failed"));
  Done(kB, absl::AbortedError("aborted"));
  EXPECT_THAT(two_.StatusOf(kB, receive2), Fails(absl::StatusCode::kAborted, Reason::kCommAborted));
  EXPECT_FALSE(two_.IsOver(kA, send));  // its launch is not answered
  Done(kA, absl::AbortedError("aborted"));
  Done(kA, absl::AbortedError("aborted"));
  EXPECT_THAT(two_.StatusOf(kA, send2), Fails(absl::StatusCode::kAborted, Reason::kCommAborted));
  ASSERT_THAT(Groups(kA), SizeIs(3));
  EXPECT_EQ(Groups(kA)[2].attempt, 2u);
  Done(kA);
  Done(kB);
  EXPECT_TRUE(two_.StatusOf(kB, receive3).ok());
  EXPECT_TRUE(two_.StatusOf(kA, send3).ok());
  two_.ExpectNothingLeft();
}

TEST_F(EngineGroupTest, AGroupThatHangsIsAbortedAtBothEnds) {
  const auto [send, receive] = Pair("k");
  two_.Run();
  two_.Advance(absl::Seconds(9));
  EXPECT_THAT(Ends(kA), IsEmpty());
  two_.Advance(absl::Seconds(2));
  EXPECT_THAT(Ends(kA), SizeIs(1));
  EXPECT_THAT(Ends(kB), SizeIs(1));
  for (int node : {kA, kB}) Done(node, absl::AbortedError("aborted"));
  const auto executing = Fails(absl::StatusCode::kDeadlineExceeded, Reason::kExecuting);
  EXPECT_THAT(two_.StatusOf(kA, send), executing);
  EXPECT_THAT(two_.StatusOf(kB, receive), executing);
  two_.ExpectNothingLeft();
}

// Groups of cliques that share a lane, one of which hangs: the lane of the leader of both, or that
// of both followers.
class EngineGroupSharedLaneTest : public EngineGroupTest, public testing::WithParamInterface<bool> {
 protected:
  // Launches the one that hangs and then the other one; the ids of its pair.
  std::pair<TransferId, TransferId> LaunchBoth() {
    Pair("hangs");
    two_.Run();
    two_.Advance(absl::Milliseconds(5));
    const uint64_t source = GetParam() ? 0 : 1, destination = GetParam() ? 3 : 2;
    const TransferId send = two_.Post(SpecOf(Side::kSend, "waits", source, destination));
    const TransferId receive = two_.Post(SpecOf(Side::kReceive, "waits", source, destination));
    two_.Run();
    for (int node : {kA, kB}) EXPECT_THAT(Groups(node), SizeIs(2));
    return {send, receive};
  }
  void AbortTheOneThatHangs() {
    two_.Advance(absl::Seconds(11));
    for (int node : {kA, kB}) {
      ASSERT_THAT(Ends(node), SizeIs(1));
      EXPECT_EQ(Ends(node)[0].clique, Groups(node)[0].clique);
      Done(node, absl::AbortedError("aborted"));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Lanes, EngineGroupSharedLaneTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "leaders" : "followers"; });

TEST_P(EngineGroupSharedLaneTest, AHangEndsNoOtherClique) {
  const auto [send, receive] = LaunchBoth();
  AbortTheOneThatHangs();
  two_.Advance(absl::Seconds(9));  // it goes on only now
  for (int node : {kA, kB}) Done(node);
  EXPECT_TRUE(two_.StatusOf(kA, send).ok());
  EXPECT_TRUE(two_.StatusOf(kB, receive).ok());
  for (int node : {kA, kB}) EXPECT_THAT(Ends(node), SizeIs(1));
  const auto [next_send, next] = Pair("hangs");  // the lanes are free
  two_.Run();
  for (int node : {kA, kB}) Done(node);
  EXPECT_TRUE(two_.StatusOf(kB, next).ok());
  two_.ExpectNothingLeft();
}

TEST_P(EngineGroupSharedLaneTest, WhatHangsOnceItsTurnHasComeIsAbortedToo) {
  const auto [send, receive] = LaunchBoth();
  AbortTheOneThatHangs();
  two_.Advance(absl::Seconds(11));
  for (int node : {kA, kB}) {
    ASSERT_THAT(Ends(node), SizeIs(2));
    Done(node, absl::AbortedError("aborted"));
  }
  const auto executing = Fails(absl::StatusCode::kDeadlineExceeded, Reason::kExecuting);
  EXPECT_THAT(two_.StatusOf(kA, send), executing);
  EXPECT_THAT(two_.StatusOf(kB, receive), executing);
  two_.ExpectNothingLeft();
}

TEST_F(EngineGroupTest, WhatIsOverAtOneEndAndHangsAtTheOtherIsAborted) {
  for (const int hangs : {kA, kB}) {
    const auto [send, receive] = Pair("k");
    two_.Run();
    Done(1 - hangs);
    const size_t before = Ends(hangs).size();
    two_.Advance(absl::Seconds(11));
    if (hangs == kA) {  // a leader does not know that it is over there
      EXPECT_THAT(Ends(hangs), SizeIs(before));
      two_.Advance(absl::Seconds(10));
    }
    EXPECT_THAT(Ends(hangs), SizeIs(before + 1));
    Done(hangs, absl::AbortedError("aborted"));
    EXPECT_TRUE(two_.IsOver(kA, send));
    EXPECT_TRUE(two_.IsOver(kB, receive));
  }
  two_.ExpectNothingLeft();
}

TEST_F(EngineGroupTest, MoreThatIsSaidAndDoesNotComeHoldsUpOneGroup) {
  Warm(kB);
  two_.a().OnMore(two_.now, PeerId(kB), true);
  Pair("k");
  two_.Run();
  EXPECT_THAT(Groups(kA), IsEmpty());
  two_.Advance(absl::Milliseconds(3));
  ASSERT_THAT(Groups(kA), SizeIs(1));
  for (int node : {kA, kB}) Done(node);
  const auto [send, receive] = Pair("next");
  two_.Run();
  ASSERT_THAT(Groups(kA), SizeIs(2));
  for (int node : {kA, kB}) Done(node);
  EXPECT_TRUE(two_.StatusOf(kB, receive).ok());
  two_.ExpectNothingLeft();
}

TEST_F(EngineGroupTest, ATransfersDeadlineLeavesTheCommunicatorAlone) {
  TransferSpec spec = SpecOf(Side::kReceive, "large", 0, 2, 25'000);
  spec.deadline = two_.now + absl::Seconds(1);
  two_.Post(SpecOf(Side::kSend, "large", 0, 2, 25'000));
  const TransferId receive = two_.Post(spec);
  two_.Run();
  two_.Advance(absl::Seconds(2));
  EXPECT_FALSE(two_.IsOver(kB, receive));  // two groups of it run
  for (int node : {kA, kB, kA, kB}) Done(node);
  EXPECT_THAT(two_.StatusOf(kB, receive),
              Fails(absl::StatusCode::kDeadlineExceeded, Reason::kExecuting));
  EXPECT_THAT(Groups(kA), SizeIs(2));  // the rest is not sent
  EXPECT_THAT(Ends(kA), IsEmpty());
  two_.ExpectNothingLeft();
}

TEST_F(EngineGroupTest, APairThatEndsOnTheWayIsLeftOutAtBothEnds) {
  Warm(kB);
  const auto [send, receive] = Pair("gone");
  const auto [send2, receive2] = Pair("stays");
  two_.Deliver(kA);
  two_.Deliver(kA);
  two_.Take(kB);
  for (PeerMessage& message : two_.daemons[kB].to_other) {  // both are handed over
    two_.a().OnMessage(two_.now, PeerId(kB), std::move(message));
  }
  two_.daemons[kB].to_other.clear();
  ASSERT_THAT(LastMessage<Group>(two_, kA).chunks, SizeIs(2));
  ASSERT_TRUE(two_.b().Cancel(two_.now, receive, Cancelled()));
  two_.Run();
  for (int node : {kA, kB}) {
    ASSERT_THAT(Groups(node), SizeIs(1));
    ASSERT_THAT(Groups(node)[0].chunks, SizeIs(1));
  }
  EXPECT_EQ(Groups(kA)[0].chunks[0].transfer, send2);
  EXPECT_EQ(Groups(kB)[0].chunks[0].transfer, receive2);
  EXPECT_THAT(two_.StatusOf(kB, receive), Fails(absl::StatusCode::kCancelled, Reason::kCancelled));
  EXPECT_THAT(two_.StatusOf(kA, send), Fails(absl::StatusCode::kCancelled, Reason::kCancelled));
  for (int node : {kA, kB}) Done(node);
  two_.ExpectNothingLeft();
}

TEST_F(EngineGroupTest, WithoutACommunicatorTheNextRouteIsTaken) {
  const auto [send, receive] = Pair("k");
  two_.Run();
  Done(kB, RouteRefused());
  Done(kA, absl::AbortedError("aborted"));
  ASSERT_THAT(two_.daemons[kA].launches, SizeIs(1));
  ASSERT_THAT(two_.daemons[kB].launches, SizeIs(1));
  EXPECT_EQ(two_.daemons[kA].launches[0].route, Route::kUcx);
  for (int node : {kA, kB}) two_.Answer(node);
  EXPECT_TRUE(two_.StatusOf(kA, send).ok());
  EXPECT_TRUE(two_.StatusOf(kB, receive).ok());
  two_.ExpectNothingLeft();
}

// The rest of it is to take another route when its deadline passes, and waits for a group to end:
// the next launch would have no deadline.
TEST_F(EngineGroupTest, WhatIsLateTakesNoOtherRoute) {
  TransferSpec spec = SpecOf(Side::kReceive, "large", 0, 2, 25'000);
  spec.deadline = two_.now + absl::Seconds(1);
  const TransferId send = two_.Post(SpecOf(Side::kSend, "large", 0, 2, 25'000));
  const TransferId receive = two_.Post(spec);
  two_.Run();
  ASSERT_THAT(Groups(kB), SizeIs(2));
  two_.opens_well = false;
  Done(kA, absl::InternalError("the kernel failed"));
  Done(kA, absl::AbortedError("aborted"));
  ASSERT_THAT(two_.daemons[kA].opens, SizeIs(2));  // for the rest
  const CommunicatorOpen open = two_.daemons[kA].opens.back();
  two_.a().OnCommunicatorFailed(two_.now, open.clique, open.attempt, RouteRefused());
  two_.Run();
  two_.Advance(absl::Seconds(2));
  EXPECT_FALSE(two_.IsOver(kB, receive));
  for (int i = 0; i < 2; ++i) Done(kB, absl::AbortedError("aborted"));
  for (int node : {kA, kB}) EXPECT_THAT(two_.daemons[node].launches, IsEmpty());
  const auto executing = Fails(absl::StatusCode::kDeadlineExceeded, Reason::kExecuting);
  EXPECT_THAT(two_.StatusOf(kA, send), executing);
  EXPECT_THAT(two_.StatusOf(kB, receive), executing);
  two_.ExpectNothingLeft();
}

TEST_F(EngineGroupTest, ALostLinkAbortsItsGroups) {
  const auto [send, receive] = Pair("k");
  two_.Run();
  two_.LinkLost();
  for (int node : {kA, kB}) {
    EXPECT_THAT(Ends(node), SizeIs(1));
    Done(node, absl::AbortedError("aborted"));
  }
  const auto lost = Fails(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable);
  EXPECT_THAT(two_.StatusOf(kA, send), lost);
  EXPECT_THAT(two_.StatusOf(kB, receive), lost);
  two_.ExpectNothingLeft();
}

}  // namespace
}  // namespace ferry
