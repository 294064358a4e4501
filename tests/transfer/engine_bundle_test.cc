// SPDX-License-Identifier: Apache-2.0
// Prepared transfers on route nccl between two daemons. The clique of devices 0 and 2: node-a
// leads.
#include "two_daemons.h"

namespace ferry {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

TransferEngine::Options BundleOptions() {
  TransferEngine::Options options;
  options.order = {Route::kLocal, Route::kNccl, Route::kUcx};
  options.cliques.cutting = {
      .group_bytes = 20'000, .group_chunks = 8, .chunk_bytes = 4096, .direct_bytes = 1024};
  return options;
}

// The direction: whether the destination leads.
class EngineBundleTest : public testing::TestWithParam<bool> {
 protected:
  EngineBundleTest() : two_(BundleOptions()) { LinkUp(); }
  void LinkUp() {
    two_.LinkUp();
    RouteTable routes = Routes(false, true);
    routes[static_cast<size_t>(Route::kNccl)].available = true;
    for (int i : {kA, kB}) two_.engine(i).OnPeerRoutes(PeerId(1 - i), routes);
  }
  int source() const { return GetParam() ? kB : kA; }
  int destination() const { return 1 - source(); }
  TransferSpec Spec(Side side, const std::string& key, uint64_t bytes) {
    const uint64_t from = source() == kA ? 0 : 2;
    TransferSpec spec = SpecOf(side, key, from, 2 - from, bytes);
    spec.prepared = true;
    spec.over_timeline = side == Side::kSend ? 7 : 8;  // numbers of prepared batches
    return spec;
  }
  // A batch at each end, of so many, the receives the other way round.
  void Prepare(size_t count, uint64_t bytes = 4096) {
    PrepareEach(std::vector<uint64_t>(count, bytes));
  }
  void PrepareEach(const std::vector<uint64_t>& bytes) {
    std::vector<TransferSpec> sends, receives;
    for (size_t i = 0, last = bytes.size() - 1; i <= last; ++i) {
      sends.push_back(Spec(Side::kSend, absl::StrCat("k", i), bytes[i]));
      receives.push_back(Spec(Side::kReceive, absl::StrCat("k", last - i), bytes[last - i]));
    }
    send_ = two_.PostBatch(sends);
    receive_ = two_.PostBatch(receives);
    two_.Run();
  }
  uint64_t BundleAt(int node) { return two_.daemons[node].launches.back().armed->bundle; }
  void Want(int node) {
    two_.engine(node).OnFiringWanted(two_.now, BundleAt(node));
    two_.Run();
  }
  std::vector<GroupLaunch>& Groups(int node) { return two_.daemons[node].groups; }
  void Done(int node, absl::Status status = absl::OkStatus()) {
    ASSERT_LT(answered_[node], Groups(node).size());
    two_.engine(node).OnGroupDone(two_.now, Groups(node)[answered_[node]++].ticket, status);
    two_.Run();
  }
  // Answers each abort of `node` as its lane does.
  void AnswerAborts(int node) {
    for (const auto& [id, why] : std::exchange(two_.daemons[node].aborts, {})) {
      uint32_t attempt = 0;
      for (const Launch& launch : two_.daemons[node].launches) {
        if (launch.transfer == id) attempt = launch.attempt;
      }
      two_.engine(node).OnLaunchDone(two_.now, id, attempt, why);
    }
    two_.Run();
  }
  void AnswerAllAborts() {
    for (int node : {destination(), source(), destination(), source()}) AnswerAborts(node);
  }
  absl::Status SendStatus(int i = 0) {
    return two_.StatusOf(source(), TransferId(send_.value() + i));
  }
  absl::Status ReceiveStatus(int i = 0) {
    return two_.StatusOf(destination(), TransferId(receive_.value() + i));
  }

  TwoDaemons two_;
  TransferId send_, receive_;
  size_t answered_[2] = {};
};
INSTANTIATE_TEST_SUITE_P(, EngineBundleTest, testing::Bool(), [](const auto& info) {
  return info.param ? "ToTheLeader" : "FromTheLeader";
});

TEST_P(EngineBundleTest, ABatchIsArmedInOneOrderAndFiredAsOneGroup) {
  Prepare(3);
  EXPECT_THAT(two_.daemons[kA].opens, SizeIs(1));  // before anybody wants a firing
  for (int node : {kA, kB}) {
    ASSERT_THAT(two_.daemons[node].launches, SizeIs(3));
    for (const Launch& launch : two_.daemons[node].launches) {
      EXPECT_EQ(launch.route, Route::kNccl);
      EXPECT_EQ(launch.role, node == source() ? LaunchRole::kSend : LaunchRole::kReceive);
      EXPECT_EQ(launch.armed->bundle, BundleAt(node));
      const uint64_t i = launch.transfer.value() - (node == source() ? send_ : receive_).value();
      EXPECT_EQ(launch.armed->place, send_.value() + (node == source() ? i : 2 - i));
    }
  }
  for (int firing = 1; firing <= 3; ++firing) {
    Want(firing % 2 == 0 ? kA : kB);
    EXPECT_THAT(Groups(kA), SizeIs(firing - 1));
    Want(firing % 2 == 0 ? kB : kA);
    for (int node : {kA, kB}) {
      ASSERT_THAT(Groups(node), SizeIs(firing));
      ASSERT_THAT(Groups(node).back().chunks, SizeIs(1));
      const GroupChunk& chunk = Groups(node).back().chunks[0];
      EXPECT_EQ(chunk.bundle, BundleAt(node));
      EXPECT_EQ(chunk.side, node == source() ? Side::kSend : Side::kReceive);
      EXPECT_EQ(chunk.offset, 0u);
      EXPECT_EQ(chunk.bytes, 3u * 4096);
    }
    Done(firing == 2 ? kA : kB);
    Done(firing == 2 ? kB : kA);
  }
  EXPECT_THAT(two_.daemons[kA].opens, SizeIs(1));
}

// The leader knows first, and waits for the other end.
TEST_P(EngineBundleTest, WhatTheLeaderSendsIsGatheredAhead) {
  Prepare(3, 100);
  std::vector<GroupAhead>& aheads = two_.daemons[kA].aheads;
  Want(kB);
  two_.engine(kA).OnFiringWanted(two_.now, BundleAt(kA));
  two_.Take(kA);
  EXPECT_THAT(Groups(kA), IsEmpty());  // not granted yet
  ASSERT_THAT(aheads, SizeIs(source() == kA ? 1 : 0));
  two_.Run();
  ASSERT_THAT(Groups(kA), SizeIs(1));
  for (const GroupAhead& ahead : aheads) {
    const GroupLaunch& launch = Groups(kA)[0];
    EXPECT_EQ(ahead.ticket, launch.ticket);
    EXPECT_EQ(ahead.clique, launch.clique);
    EXPECT_EQ(ahead.attempt, launch.attempt);
    ASSERT_THAT(ahead.chunks, SizeIs(1));
    EXPECT_EQ(ahead.chunks[0].bundle, BundleAt(kA));
    EXPECT_EQ(ahead.chunks[0].bytes, 300u);
  }
  // Where another group is under way there is no hurry.
  Prepare(3, 100);
  Want(kB);
  Want(kA);
  EXPECT_THAT(Groups(kA), SizeIs(2));
  EXPECT_THAT(aheads, SizeIs(source() == kA ? 1 : 0));
  EXPECT_THAT(two_.daemons[kB].aheads, IsEmpty());
}

TEST_P(EngineBundleTest, WhatIsLargeAndInOnePieceIsGatheredByNobody) {
  PrepareEach({12'000, 1024});  // a chunk on average
  Want(kB);
  Want(kA);
  EXPECT_THAT(Groups(kA), SizeIs(1));
  EXPECT_THAT(two_.daemons[kA].aheads, IsEmpty());
}

TEST_P(EngineBundleTest, WhatHasATinyTransferOrManySmallOnesMayBeGathered) {
  const size_t gathers = source() == kA ? 1 : 0;
  PrepareEach({12'000, 1023});
  Want(kB);
  Want(kA);
  EXPECT_THAT(two_.daemons[kA].aheads, SizeIs(gathers));
  Done(kA);
  Done(kB);
  Prepare(3, 1024);
  Want(kB);
  Want(kA);
  EXPECT_THAT(Groups(kA), SizeIs(2));
  EXPECT_THAT(two_.daemons[kA].aheads, SizeIs(2 * gathers));
}

// The other end may be a firing ahead of one whose lane has yet to say that the last one is over.
TEST_P(EngineBundleTest, AFiringWaitsUntilTheOneBeforeIsOverAtBothEnds) {
  Prepare(1);
  Want(kA);
  Want(kB);
  Done(kB);
  Want(kB);
  EXPECT_THAT(Groups(kA), SizeIs(1));
  Done(kA);
  EXPECT_THAT(Groups(kA), SizeIs(1));
  Want(kA);
  EXPECT_THAT(Groups(kA), SizeIs(2));
  EXPECT_THAT(Groups(kB), SizeIs(2));
}

TEST_P(EngineBundleTest, WhatIsLongGoesInSeveralGroups) {
  Prepare(2, 25'000);
  Want(kA);
  Want(kB);
  two_.Advance(absl::Milliseconds(3));
  uint64_t at = 0;
  for (uint64_t bytes : {20'000, 20'000, 10'000}) {
    ASSERT_LT(answered_[kA], Groups(kA).size());
    const GroupChunk& chunk = Groups(kA)[answered_[kA]].chunks[0];
    EXPECT_EQ(chunk.offset, at);
    EXPECT_EQ(chunk.bytes, bytes);
    at += bytes;
    Done(kA);
    Done(kB);
  }
  Want(kA);
  Want(kB);
  ASSERT_GT(Groups(kB).size(), 3u);
  EXPECT_EQ(Groups(kB)[3].chunks[0].offset, 0u);
}

TEST_P(EngineBundleTest, OthersTakeTurnsWithFirings) {
  Prepare(1, 60'000);
  two_.Post(SpecOf(Side::kSend, "other", 0, 2, 10));
  Want(kA);
  Want(kB);
  two_.Post(SpecOf(Side::kReceive, "other", 0, 2, 10));
  two_.Run();
  two_.Advance(absl::Milliseconds(3));
  while (answered_[kA] < Groups(kA).size()) {
    for (int node : {kA, kB}) Done(node);
  }
  ASSERT_THAT(Groups(kA), SizeIs(4));
  size_t ordinary = 0;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_THAT(Groups(kA)[i].chunks, SizeIs(1));
    if (Groups(kA)[i].chunks[0].bundle == 0) ordinary = i;
  }
  EXPECT_TRUE(ordinary == 1 || ordinary == 2) << ordinary;
}

TEST_P(EngineBundleTest, NothingLeavesWhileAGroupCarriesIt) {
  Prepare(2);
  Want(kA);
  Want(kB);
  ASSERT_TRUE(
      two_.engine(destination()).Cancel(two_.now, TransferId(receive_.value() + 1), Cancelled()));
  two_.Run();
  EXPECT_THAT(two_.daemons[destination()].aborts, IsEmpty());
  Done(destination());
  EXPECT_THAT(two_.daemons[destination()].aborts, SizeIs(1));
  AnswerAborts(destination());
  EXPECT_THAT(two_.daemons[destination()].aborts, SizeIs(1));  // a batch ends as one
  EXPECT_THAT(two_.daemons[source()].aborts, IsEmpty());       // its group is not over
  Done(source());
  AnswerAllAborts();
  for (int i : {0, 1}) {
    EXPECT_THAT(SendStatus(i), Fails(absl::StatusCode::kCancelled, Reason::kCancelled));
    EXPECT_THAT(ReceiveStatus(i), Fails(absl::StatusCode::kCancelled, Reason::kCancelled));
  }
  two_.ExpectNothingLeft();
}

TEST_P(EngineBundleTest, WhatIsCancelledIsFiredNoMore) {
  Prepare(2);
  Want(kA);
  ASSERT_TRUE(two_.engine(source()).Cancel(two_.now, send_, Cancelled()));
  two_.Run();
  Want(kB);
  EXPECT_THAT(Groups(kA), IsEmpty());
  AnswerAllAborts();
  for (int i : {0, 1}) {
    EXPECT_THAT(SendStatus(i), Fails(absl::StatusCode::kCancelled, Reason::kCancelled));
  }
  two_.ExpectNothingLeft();
}

TEST_P(EngineBundleTest, AFiringThatFailsEndsItsBatchAtBothEnds) {
  for (int failing : {source(), destination()}) {
    Prepare(2);
    Want(kA);
    Want(kB);
    Done(failing, absl::InternalError("the kernel failed"));
    Done(1 - failing, absl::AbortedError("aborted"));
    AnswerAllAborts();
    for (int i : {0, 1}) {
      EXPECT_THAT(SendStatus(i), Says("the kernel failed"));
      EXPECT_THAT(ReceiveStatus(i), Says("the kernel failed"));
    }
    two_.ExpectNothingLeft();
    EXPECT_THAT(two_.daemons[kA].communicator_ends, SizeIs(failing == source() ? 1 : 2));
  }
}

// The source does not know what the destination has.
TEST_P(EngineBundleTest, AFiringThatFailsAtItsSourceAloneEndsItsBatch) {
  Prepare(1);
  Want(kA);
  Want(kB);
  Done(destination());
  Done(source(), absl::InternalError("the kernel failed"));
  AnswerAllAborts();
  EXPECT_THAT(SendStatus(), Says("the kernel failed"));
  EXPECT_THAT(ReceiveStatus(), Says("the kernel failed"));
  two_.ExpectNothingLeft();
}

TEST_P(EngineBundleTest, WithoutACommunicatorItTakesTheNextRouteIfNothingWasFired) {
  two_.opens_well = false;
  Prepare(2);
  const Clique clique{GlobalDeviceId(0), GlobalDeviceId(2)};
  two_.a().OnCommunicatorFailed(two_.now, clique, 1, RouteRefused());
  two_.Run();
  AnswerAllAborts();
  for (int node : {kA, kB}) {
    ASSERT_THAT(two_.daemons[node].watches, SizeIs(2));  // of its word, as on ucx
    EXPECT_TRUE(two_.daemons[node].watches[0].prepared);
  }
  EXPECT_THAT(two_.daemons[destination()].fallbacks, SizeIs(2));
}

TEST_P(EngineBundleTest, WhenTheLinkIsLostItEndsWithItsGroups) {
  Prepare(2);
  Want(kA);
  Want(kB);
  two_.LinkLost();
  for (int node : {kA, kB}) {
    EXPECT_THAT(two_.daemons[node].aborts, IsEmpty());
    EXPECT_THAT(two_.daemons[node].communicator_ends, SizeIs(1));
    Done(node, absl::AbortedError("aborted"));
    EXPECT_THAT(two_.daemons[node].aborts, SizeIs(2));
    AnswerAborts(node);
  }
  EXPECT_THAT(SendStatus(), Fails(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable));
  EXPECT_THAT(ReceiveStatus(1), Fails(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable));
  two_.ExpectNothingLeft();
  LinkUp();
  Prepare(1);
  Want(kA);
  Want(kB);
  EXPECT_EQ(Groups(kA).back().attempt, 2u);
}

TEST_P(EngineBundleTest, AFollowersNonsenseIsIgnored) {
  Prepare(1);
  const Clique clique{GlobalDeviceId(0), GlobalDeviceId(2)};
  const PairName unknown{GetParam(), TransferId(12345), 1};
  const uint64_t before = two_.a().view().ignored_messages();
  two_.a().OnMessage(two_.now, PeerId(kB), Fire{clique, unknown});
  two_.a().OnMessage(two_.now, PeerId(kB), Fire{{GlobalDeviceId(1), GlobalDeviceId(3)}, unknown});
  EXPECT_EQ(two_.a().view().ignored_messages(), before + 2);
  Want(kB);
  two_.a().OnMessage(two_.now, PeerId(kB),
                     Fire{clique, {GetParam(), receive_, 1}});  // it wants it already
  EXPECT_EQ(two_.a().view().ignored_messages(), before + 3);
}

}  // namespace
}  // namespace ferry
