// SPDX-License-Identifier: Apache-2.0
#include "two_daemons.h"

namespace ferry {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class EnginePairTest : public testing::Test {
 protected:
  explicit EnginePairTest(TransferEngine::Options options = {}) : two_(std::move(options)) {}
  std::vector<Launch>& launches(int node) { return two_.daemons[node].launches; }
  TwoDaemons two_;
};

TEST_F(EnginePairTest, MappedIsOneCopyAtTheDestinationAndADone) {
  two_.LinkUp();
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Run();
  EXPECT_THAT(launches(kA), IsEmpty());
  ASSERT_THAT(launches(kB), SizeIs(1));
  const Launch& launch = launches(kB)[0];
  EXPECT_EQ(launch.transfer, to);
  EXPECT_EQ(launch.attempt, 1u);
  EXPECT_EQ(launch.route, Route::kMapped);
  EXPECT_EQ(launch.role, LaunchRole::kCopy);
  EXPECT_EQ(launch.peer, PeerId(kA));
  EXPECT_EQ(launch.device, GlobalDeviceId(2));
  EXPECT_EQ(launch.remote_device, GlobalDeviceId(0));
  EXPECT_THAT(launch.layout.extents(), ElementsAre(Range{ArenaId(20), 64, 4096}));
  EXPECT_THAT(launch.remote_layout.extents(), ElementsAre(Range{ArenaId(10), 64, 4096}));
  EXPECT_FALSE(two_.IsOver(kB, to));
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
  EXPECT_TRUE(two_.StatusOf(kB, to).ok());
  const Ended& ended = two_.daemons[kA].ended[0];
  EXPECT_EQ(ended.route, Route::kMapped);
  EXPECT_EQ(ended.bytes, 4096u);
  EXPECT_EQ(ended.over_timeline, 3u);
  EXPECT_EQ(ended.posted, two_.now);
  EXPECT_THAT(ended.layout.extents(), ElementsAre(Range{ArenaId(10), 64, 4096}));
  two_.ExpectNothingLeft();
}

TEST_F(EnginePairTest, AnOfferThatComesBeforeItsReceiveWaits) {
  two_.LinkUp();
  two_.Send();
  two_.Run();
  EXPECT_EQ(two_.b().view().waiting_offers(), 1u);
  two_.Receive();
  two_.Run();
  EXPECT_EQ(two_.b().view().waiting_offers(), 0u);
  EXPECT_THAT(launches(kB), SizeIs(1));
}

TEST_F(EnginePairTest, UcxLaunchesBothHalvesUnderOneTag) {
  two_.LinkUp(false, true);
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Run();
  ASSERT_THAT(launches(kA), SizeIs(1));
  ASSERT_THAT(launches(kB), SizeIs(1));
  EXPECT_EQ(launches(kB)[0].role, LaunchRole::kReceive);
  EXPECT_EQ(launches(kA)[0].role, LaunchRole::kSend);
  EXPECT_EQ(launches(kA)[0].transfer, from);
  EXPECT_EQ(launches(kA)[0].device, GlobalDeviceId(0));
  EXPECT_EQ(launches(kA)[0].remote_device, GlobalDeviceId(2));
  EXPECT_NE(launches(kB)[0].tag, 0u);
  EXPECT_EQ(launches(kA)[0].tag, launches(kB)[0].tag);
  two_.Send("l");
  two_.Receive("l");
  two_.Run();
  EXPECT_NE(launches(kB)[1].tag, launches(kB)[0].tag);
  two_.b().OnLaunchDone(two_.now, to, 1, absl::OkStatus());
  two_.Run();
  EXPECT_TRUE(two_.IsOver(kB, to));
  EXPECT_FALSE(two_.IsOver(kA, from)) << "its memory is still being read";
  two_.a().OnLaunchDone(two_.now, from, 1, absl::OkStatus());
  two_.Run();
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
  EXPECT_THAT(two_.daemons[kA].aborts, IsEmpty());
}

TEST_F(EnginePairTest, ASendThatIsOutWaitsForTheDestinationToSaySo) {
  two_.LinkUp(false, true);
  const TransferId from = two_.Send();
  two_.Receive();
  two_.Run();
  two_.Answer(kA);
  EXPECT_FALSE(two_.IsOver(kA, from));
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
}

TEST_F(EnginePairTest, ATableIsSharedAllTheWay) {
  two_.LinkUp();
  TransferSpec send = SpecOf(Side::kSend, "k", 0, 2, 100);
  TransferSpec receive = SpecOf(Side::kReceive, "k", 0, 2, 100);
  send.layout = *Layout::Strided(ArenaId(10), 0, 1, 2, 100);
  receive.layout = *Layout::BlockTable(ArenaId(20), 0, 20, {9, 2, 3, 1, 10});
  two_.Post(send);
  two_.Post(receive);
  two_.Run();
  ASSERT_THAT(launches(kB), SizeIs(1));
  EXPECT_EQ(launches(kB)[0].layout.blocks(), receive.layout.blocks());
  EXPECT_EQ(launches(kB)[0].remote_layout, send.layout);
  two_.Answer(kB);
  EXPECT_EQ(two_.daemons[kB].ended[0].layout.blocks(), receive.layout.blocks());
  two_.ExpectNothingLeft();
}

TEST_F(EnginePairTest, ZeroBytesGoTheWholeRoad) {
  two_.LinkUp(false, true);
  TransferSpec send = SpecOf(Side::kSend, "k", 0, 2, 0);
  TransferSpec receive = SpecOf(Side::kReceive, "k", 0, 2, 0);
  send.layout = Layout();
  receive.layout = Layout();
  const TransferId from = two_.Post(send);
  const TransferId to = two_.Post(receive);
  two_.Run();
  EXPECT_THAT(launches(kA), SizeIs(1));
  EXPECT_THAT(launches(kB), SizeIs(1));
  two_.Answer(kA);
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
  EXPECT_TRUE(two_.StatusOf(kB, to).ok());
}

TEST_F(EnginePairTest, APairOfOneDaemonIsOneLocalCopyAndEndsTogether) {
  const TransferId from = two_.Post(SpecOf(Side::kSend, "k", 0, 1));
  const TransferId to = two_.Post(SpecOf(Side::kReceive, "k", 0, 1));
  two_.Take(kA);
  ASSERT_THAT(launches(kA), SizeIs(1));
  EXPECT_EQ(launches(kA)[0].transfer, to);
  EXPECT_EQ(launches(kA)[0].route, Route::kLocal);
  EXPECT_EQ(launches(kA)[0].peer, PeerId(kA));
  EXPECT_EQ(launches(kA)[0].device, GlobalDeviceId(1));
  EXPECT_STREQ(two_.a().view().Find(from)->state, "launched");
  EXPECT_THAT(two_.daemons[kA].to_other, IsEmpty());
  EXPECT_THAT(two_.daemons[kA].wanted, IsEmpty());
  two_.Answer(kA);
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
  EXPECT_TRUE(two_.StatusOf(kA, to).ok());
}

TEST_F(EnginePairTest, DifferentBytesEndBothSidesWithBothValues) {
  two_.LinkUp();
  const TransferId from = two_.Post(SpecOf(Side::kSend, "k", 0, 2, 4096));
  const TransferId to = two_.Post(SpecOf(Side::kReceive, "k", 0, 2, 8192));
  two_.Run();
  for (const absl::Status& status : {two_.StatusOf(kA, from), two_.StatusOf(kB, to)}) {
    EXPECT_THAT(status, Fails(StatusCode::kFailedPrecondition, Reason::kTransferMismatch));
    EXPECT_THAT(status, Says("key 'k' from device 0 to device 2"));
    EXPECT_THAT(status, Says("4096 bytes"));
    EXPECT_THAT(status, Says("8192 bytes"));
  }
  EXPECT_THAT(launches(kB), IsEmpty());
  two_.ExpectNothingLeft();
}

TEST_F(EnginePairTest, ZeroBytesAreComparedLikeAnyOtherNumber) {
  two_.LinkUp();
  const auto run = [&](uint64_t sent, uint64_t received) {
    TransferSpec send = SpecOf(Side::kSend, "k", 0, 2, sent);
    TransferSpec receive = SpecOf(Side::kReceive, "k", 0, 2, received);
    if (sent == 0) send.layout = Layout();
    if (received == 0) receive.layout = Layout();
    const TransferId from = two_.Post(send);
    const TransferId to = two_.Post(receive);
    const size_t before = launches(kB).size();
    two_.Run();
    EXPECT_EQ(launches(kB).size(), before + (sent == received ? 1 : 0));
    if (launches(kB).size() > before) two_.Answer(kB);
    EXPECT_EQ(two_.StatusOf(kA, from).code(), two_.StatusOf(kB, to).code());
    return two_.StatusOf(kB, to);
  };
  EXPECT_TRUE(run(0, 0).ok()) << "a launch, although nothing moves";
  const absl::Status nothing_sent = run(0, 1);
  EXPECT_THAT(nothing_sent, Fails(StatusCode::kFailedPrecondition, Reason::kTransferMismatch));
  EXPECT_THAT(nothing_sent, Says("the send has 0 bytes, the receive 1 byte"));
  const absl::Status nothing_received = run(1, 0);
  EXPECT_THAT(nothing_received, Fails(StatusCode::kFailedPrecondition, Reason::kTransferMismatch));
  EXPECT_THAT(nothing_received, Says("the send has 1 byte, the receive 0 bytes"));
  two_.ExpectNothingLeft();
}

TEST_F(EnginePairTest, TypesAndShapesAreComparedOnlyIfBothAreGiven) {
  two_.LinkUp();
  auto run = [&](DataType sent, DataType received, Shape sent_shape, Shape received_shape) {
    TransferSpec send = SpecOf(Side::kSend, "k", 0, 2);
    TransferSpec receive = SpecOf(Side::kReceive, "k", 0, 2);
    send.data_type = sent;
    receive.data_type = received;
    send.shape = sent_shape;
    receive.shape = received_shape;
    const TransferId from = two_.Post(send);
    const TransferId to = two_.Post(receive);
    const size_t before = launches(kB).size();
    two_.Run();
    if (launches(kB).size() > before) two_.Answer(kB);
    EXPECT_EQ(two_.StatusOf(kA, from).code(), two_.StatusOf(kB, to).code());
    return two_.StatusOf(kB, to);
  };
  EXPECT_TRUE(run(DataType::kF32, DataType::kUnspecified, {}, {true, {1024}}).ok());
  EXPECT_TRUE(run(DataType::kF32, DataType::kF32, {true, {32, 32}}, {true, {32, 32}}).ok());
  const absl::Status type = run(DataType::kF32, DataType::kS32, {}, {});
  EXPECT_THAT(type, Fails(StatusCode::kFailedPrecondition, Reason::kTransferMismatch));
  EXPECT_THAT(type, Says("F32"));
  EXPECT_THAT(type, Says("S32"));
  const absl::Status shape = run(DataType::kF32, DataType::kF32, {true, {32, 32}}, {true, {1024}});
  EXPECT_THAT(shape, Fails(StatusCode::kFailedPrecondition, Reason::kTransferMismatch));
  EXPECT_THAT(shape, Says("[32,32]"));
  EXPECT_THAT(shape, Says("[1024]"));
}

TEST_F(EnginePairTest, ALocalPairThatDiffersEndsOnBothSides) {
  const TransferId from = two_.Post(SpecOf(Side::kSend, "k", 0, 1, 1));
  const TransferId to = two_.Post(SpecOf(Side::kReceive, "k", 0, 1, 2));
  two_.Take(kA);
  EXPECT_THAT(two_.StatusOf(kA, from),
              Fails(StatusCode::kFailedPrecondition, Reason::kTransferMismatch));
  EXPECT_THAT(two_.StatusOf(kA, to),
              Fails(StatusCode::kFailedPrecondition, Reason::kTransferMismatch));
}

TEST_F(EnginePairTest, AMatchedPairWaitsForTheSendersData) {
  two_.LinkUp();
  TransferSpec send = SpecOf(Side::kSend, "k", 0, 2);
  send.defined = false;
  const TransferId from = two_.Post(send);
  const TransferId to = two_.Receive();
  two_.Run();
  EXPECT_THAT(launches(kB), IsEmpty());
  EXPECT_STREQ(two_.a().view().Find(from)->state, "matched");
  EXPECT_STREQ(two_.b().view().Find(to)->state, "matched");
  two_.a().OnDefined(two_.now, from);
  two_.Run();
  EXPECT_THAT(launches(kB), SizeIs(1));
}

TEST_F(EnginePairTest, ASendDefinedWhileItsOfferWaitsIsReadyWhenItIsMatched) {
  two_.LinkUp();
  TransferSpec send = SpecOf(Side::kSend, "k", 0, 2);
  send.defined = false;
  const TransferId from = two_.Post(send);
  two_.Run();
  two_.a().OnDefined(two_.now, from);
  two_.Run();
  two_.Receive();
  two_.Run();
  EXPECT_THAT(launches(kB), SizeIs(1));
}

TEST_F(EnginePairTest, ASendDefinedBeforeTheLinkIsUpIsOfferedReady) {
  TransferSpec send = SpecOf(Side::kSend, "k", 0, 2);
  send.defined = false;
  const TransferId from = two_.Post(send);
  two_.a().OnDefined(two_.now, from);
  two_.Receive();
  two_.LinkUp();
  EXPECT_THAT(launches(kB), SizeIs(1));
}

TEST_F(EnginePairTest, AMatchedPairWaitsForTheReceiversMemory) {
  two_.LinkUp();
  TransferSpec receive = SpecOf(Side::kReceive, "k", 0, 2);
  receive.defined = false;
  const TransferId to = two_.Post(receive);
  two_.Send();
  two_.Run();
  EXPECT_THAT(launches(kB), IsEmpty());
  two_.b().OnDefined(two_.now, to);
  two_.Run();
  EXPECT_THAT(launches(kB), SizeIs(1));
}

TEST_F(EnginePairTest, ALocalPairWaitsForBothEnds) {
  TransferSpec send = SpecOf(Side::kSend, "k", 0, 1);
  TransferSpec receive = SpecOf(Side::kReceive, "k", 0, 1);
  send.defined = receive.defined = false;
  const TransferId from = two_.Post(send);
  const TransferId to = two_.Post(receive);
  two_.a().OnDefined(two_.now, to);
  two_.Take(kA);
  EXPECT_THAT(launches(kA), IsEmpty());
  two_.a().OnDefined(two_.now, from);
  two_.Take(kA);
  EXPECT_THAT(launches(kA), SizeIs(1));
}

TEST_F(EnginePairTest, EitherSideMayInsistOnARoute) {
  two_.LinkUp();
  TransferSpec send = SpecOf(Side::kSend, "s", 0, 2);
  send.route = Route::kUcx;
  two_.Post(send);
  two_.Receive("s");
  two_.Run();
  EXPECT_EQ(launches(kB).back().route, Route::kUcx);
  TransferSpec receive = SpecOf(Side::kReceive, "r", 0, 2);
  receive.route = Route::kUcx;
  two_.Post(receive);
  two_.Send("r");
  two_.Run();
  ASSERT_THAT(launches(kB), SizeIs(2));
  EXPECT_EQ(launches(kB).back().route, Route::kUcx);
}

TEST_F(EnginePairTest, InsistingOnDifferentRoutesFailsOnBothSides) {
  two_.LinkUp();
  TransferSpec send = SpecOf(Side::kSend, "k", 0, 2);
  TransferSpec receive = SpecOf(Side::kReceive, "k", 0, 2);
  send.route = Route::kUcx;
  receive.route = Route::kMapped;
  const TransferId from = two_.Post(send);
  const TransferId to = two_.Post(receive);
  two_.Run();
  for (const absl::Status& status : {two_.StatusOf(kA, from), two_.StatusOf(kB, to)}) {
    EXPECT_THAT(status, Fails(StatusCode::kFailedPrecondition, Reason::kRouteUnavailable));
    EXPECT_THAT(status, Says("ucx"));
    EXPECT_THAT(status, Says("mapped"));
  }
}

TEST_F(EnginePairTest, NoRouteAtAllListsWhyNotEachOne) {
  two_.LinkUp(false, false);
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Run();
  for (const absl::Status& status : {two_.StatusOf(kA, from), two_.StatusOf(kB, to)}) {
    EXPECT_THAT(status, Fails(StatusCode::kFailedPrecondition, Reason::kRouteUnavailable));
    EXPECT_THAT(status, Says("local (device 0 belongs to node-a)"));
    EXPECT_THAT(status, Says("mapped (another host)"));
    EXPECT_THAT(status, Says("ucx (no libucp)"));
  }
  two_.ExpectNothingLeft();
}

TEST_F(EnginePairTest, NewRoutesOfAPeerCountFromTheNextMatchOn) {
  two_.LinkUp();
  two_.b().OnPeerRoutes(PeerId(kA), Routes(false, true));
  two_.Send();
  two_.Receive();
  two_.Run();
  EXPECT_EQ(launches(kB).back().route, Route::kUcx);
}

TEST_F(EnginePairTest, AnImpossibleLaunchFallsBackToTheNextRoute) {
  two_.LinkUp();
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Run();
  two_.Answer(kB, RouteRefused());
  ASSERT_THAT(launches(kB), SizeIs(2));
  EXPECT_EQ(launches(kB)[1].route, Route::kUcx);
  EXPECT_EQ(launches(kB)[1].attempt, 2u);
  ASSERT_THAT(launches(kA), SizeIs(1));
  EXPECT_EQ(launches(kA)[0].attempt, 2u);
  ASSERT_THAT(two_.daemons[kB].fallbacks, SizeIs(1));
  EXPECT_EQ(two_.daemons[kB].fallbacks[0].from, Route::kMapped);
  EXPECT_EQ(two_.daemons[kB].fallbacks[0].to, Route::kUcx);
  EXPECT_THAT(two_.daemons[kB].fallbacks[0].why, testing::HasSubstr("no endpoint"));
  two_.Answer(kA);
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
  EXPECT_TRUE(two_.StatusOf(kB, to).ok());
}

TEST_F(EnginePairTest, AfterTheLastRouteBothSidesLearnWhy) {
  two_.LinkUp(true, false);
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Run();
  two_.Answer(kB, RouteRefused());
  ASSERT_THAT(two_.daemons[kB].fallbacks, SizeIs(1));
  EXPECT_EQ(two_.daemons[kB].fallbacks[0].to, Route::kUnspecified);
  for (const absl::Status& status : {two_.StatusOf(kA, from), two_.StatusOf(kB, to)}) {
    EXPECT_THAT(status, Fails(StatusCode::kFailedPrecondition, Reason::kRouteUnavailable));
    EXPECT_THAT(status, Says("mapped (no endpoint)"));
    EXPECT_THAT(status, Says("ucx (no libucp)"));
  }
}

TEST_F(EnginePairTest, AnInsistedRouteDoesNotFallBack) {
  two_.LinkUp();
  TransferSpec send = SpecOf(Side::kSend, "k", 0, 2);
  send.route = Route::kMapped;
  const TransferId from = two_.Post(send);
  const TransferId to = two_.Receive();
  two_.Run();
  two_.Answer(kB, RouteRefused());
  EXPECT_THAT(two_.StatusOf(kB, to),
              Fails(StatusCode::kFailedPrecondition, Reason::kRouteUnavailable));
  EXPECT_THAT(two_.StatusOf(kA, from),
              Fails(StatusCode::kFailedPrecondition, Reason::kRouteUnavailable));
  EXPECT_THAT(launches(kB), SizeIs(1));
}

TEST_F(EnginePairTest, AFailedLaunchEndsBothSidesAndAbortsTheOtherHalf) {
  two_.LinkUp(false, true);
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Run();
  two_.Answer(kB, Error(StatusCode::kInternal, Reason::kInternal, "truncated"));
  EXPECT_THAT(two_.StatusOf(kB, to), Says("truncated"));
  EXPECT_FALSE(two_.IsOver(kA, from));
  ASSERT_THAT(two_.daemons[kA].aborts, SizeIs(1));
  EXPECT_EQ(two_.daemons[kA].aborts[0].first, from);
  two_.Answer(kA, absl::AbortedError("aborted"));
  EXPECT_THAT(two_.StatusOf(kA, from), Fails(StatusCode::kInternal, Reason::kInternal));
  EXPECT_THAT(two_.StatusOf(kA, from), Says("truncated"));
  EXPECT_THAT(two_.StatusOf(kA, from), Says("node-b (device 2)"));
}

TEST_F(EnginePairTest, ASendThatFailsAbortsTheReceiveAndBothLearnWhy) {
  two_.LinkUp(false, true);
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Run();
  two_.Answer(kA, Error(StatusCode::kInternal, Reason::kInternal, "bad memory"));
  ASSERT_THAT(two_.daemons[kB].aborts, SizeIs(1));
  EXPECT_FALSE(two_.IsOver(kB, to));
  two_.Answer(kB, absl::AbortedError("aborted"));
  EXPECT_THAT(two_.StatusOf(kB, to), Says("bad memory"));
  EXPECT_THAT(two_.StatusOf(kB, to), Says("node-a (device 0)"));
  EXPECT_THAT(two_.StatusOf(kA, from), Says("bad memory"));
  two_.ExpectNothingLeft();
}

class EnginePairUcxFirstTest : public EnginePairTest {
 protected:
  EnginePairUcxFirstTest() : EnginePairTest({.order = {Route::kUcx, Route::kMapped}}) {}
};

TEST_F(EnginePairUcxFirstTest, ASendThatIsImpossibleFallsBackOnceTheReceiveIsAnswered) {
  two_.LinkUp();
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Run();
  two_.Answer(kA, RouteRefused());
  EXPECT_THAT(launches(kB), SizeIs(1)) << "the receive still runs";
  two_.Answer(kB, absl::AbortedError("aborted"));
  ASSERT_THAT(launches(kB), SizeIs(2));
  EXPECT_EQ(launches(kB)[1].route, Route::kMapped);
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
  EXPECT_TRUE(two_.StatusOf(kB, to).ok());
}

TEST_F(EnginePairUcxFirstTest, AFallBackFromUcxAbortsTheSendThatNobodyReceives) {
  two_.LinkUp();
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Run();
  two_.Answer(kB, RouteRefused());
  two_.Answer(kB);  // the copy
  EXPECT_TRUE(two_.StatusOf(kB, to).ok());
  EXPECT_FALSE(two_.IsOver(kA, from));
  ASSERT_THAT(two_.daemons[kA].aborts, SizeIs(1));
  two_.Answer(kA, absl::AbortedError("aborted"));
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
}

TEST_F(EnginePairTest, ASecondGoWaitsForTheAnswerOfTheFirstLaunch) {
  two_.LinkUp(false, true);
  const TransferId from = two_.Send();
  two_.Receive();
  two_.Run();
  two_.a().OnMessage(two_.now, PeerId(kB), Go{from, 2, Route::kUcx, 77});
  two_.Take(kA);
  EXPECT_THAT(launches(kA), SizeIs(1));
  EXPECT_THAT(two_.daemons[kA].aborts, SizeIs(1));
  two_.a().OnLaunchDone(two_.now, from, 1, absl::AbortedError("aborted"));
  two_.Take(kA);
  ASSERT_THAT(launches(kA), SizeIs(2));
  EXPECT_EQ(launches(kA)[1].attempt, 2u);
  EXPECT_EQ(launches(kA)[1].tag, 77u);
  EXPECT_THAT(two_.daemons[kA].to_other, IsEmpty()) << "the old launch is nobody's business";
}

TEST_F(EnginePairTest, AnswersOfOldLaunchesAreIgnored) {
  two_.LinkUp();
  const TransferId to = two_.Receive();
  two_.Send();
  two_.Run();
  two_.Answer(kB, RouteRefused());
  two_.b().OnLaunchDone(two_.now, to, 1, absl::OkStatus());
  two_.Run();
  EXPECT_FALSE(two_.IsOver(kB, to));
}

}  // namespace
}  // namespace ferry
