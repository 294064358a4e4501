// SPDX-License-Identifier: Apache-2.0
#include "two_daemons.h"

namespace ferry {
namespace {

using absl::Seconds;
using absl::StatusCode;
using testing::IsEmpty;
using testing::SizeIs;

class EngineEndTest : public testing::Test {
 protected:
  TransferSpec Timed(Side side, uint64_t source = 0, uint64_t destination = 2,
                     absl::Duration deadline = Seconds(60)) {
    TransferSpec spec = SpecOf(side, "k", source, destination);
    spec.deadline = two_.now + deadline;
    return spec;
  }
  TransferSpec Undefined(TransferSpec spec) {
    spec.defined = false;
    return spec;
  }
  TwoDaemons two_;
};

// --- Deadlines.

TEST_F(EngineEndTest, AReceiveThatNobodySendsToEndsAtItsDeadlineAndNotBefore) {
  two_.LinkUp();
  const TransferId to = two_.Post(Timed(Side::kReceive));
  // It is looked at before, when it has waited for long.
  for (const int after : {1, 14, 45}) {
    EXPECT_EQ(two_.b().NextDeadline(), two_.now + Seconds(after));
    if (after < 45) two_.Advance(Seconds(after));
  }
  two_.Advance(Seconds(44));
  EXPECT_FALSE(two_.IsOver(kB, to));
  two_.Advance(Seconds(1));
  EXPECT_THAT(two_.StatusOf(kB, to), Fails(StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer));
  EXPECT_THAT(two_.StatusOf(kB, to),
              Says("the send of key 'k' at node-a (device 0) was not posted"));
  EXPECT_THAT(two_.StatusOf(kB, to), Says("within 60 s"));
  EXPECT_EQ(two_.b().NextDeadline(), two_.now + Tombstones::kLife);
  two_.ExpectNothingLeft();
}

TEST_F(EngineEndTest, ASendThatNobodyReceivesIsWithdrawnAtItsDeadline) {
  two_.LinkUp();
  const TransferId from = two_.Post(Timed(Side::kSend));
  two_.Run();
  two_.now += Seconds(60);
  two_.a().OnTime(two_.now);
  two_.Take(kA);
  EXPECT_FALSE(two_.IsOver(kA, from)) << "it waits for the answer";
  two_.Run();
  EXPECT_THAT(two_.StatusOf(kA, from),
              Fails(StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer));
  EXPECT_THAT(two_.StatusOf(kA, from),
              Says("the receive of key 'k' at node-b (device 2) was not posted within 60 s"));
  two_.ExpectNothingLeft();
}

TEST_F(EngineEndTest, TheDestinationDropsAnOfferWhoseSourceForgotIt) {
  two_.LinkUp();
  two_.Post(Timed(Side::kSend));
  two_.Run();
  two_.now += Seconds(120);
  two_.b().OnTime(two_.now);
  const Done done = LastMessage<Done>(two_, kB);
  EXPECT_THAT(done.status, Fails(StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer));
  EXPECT_EQ(two_.b().view().waiting_offers(), 0u);
}

TEST_F(EngineEndTest, AtTheDeadlineAMissingLinkIsTheReasonAndTellsTheLastError) {
  const TransferId from = two_.Post(Timed(Side::kSend));
  const TransferId to = two_.Post(Timed(Side::kReceive));
  two_.a().OnPeerLost(two_.now, PeerId(kB), absl::UnavailableError("connection refused"), false);
  two_.Advance(Seconds(60));
  EXPECT_THAT(two_.StatusOf(kA, from), Fails(StatusCode::kUnavailable, Reason::kPeerUnreachable));
  EXPECT_THAT(two_.StatusOf(kA, from), Says("no link to node-b"));
  EXPECT_THAT(two_.StatusOf(kA, from), Says("connection refused"));
  EXPECT_THAT(two_.StatusOf(kB, to), Fails(StatusCode::kUnavailable, Reason::kPeerUnreachable));
  EXPECT_THAT(two_.StatusOf(kB, to), Says("no connection yet"));
}

TEST_F(EngineEndTest, AMatchedPairEndsOnBothSidesAtTheReceiversDeadline) {
  two_.LinkUp();
  const TransferId from = two_.Post(Undefined(Timed(Side::kSend, 0, 2, Seconds(90))));
  const TransferId to = two_.Post(Timed(Side::kReceive));
  two_.Run();
  two_.Advance(Seconds(60));
  EXPECT_THAT(two_.StatusOf(kB, to), Fails(StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer));
  EXPECT_THAT(two_.StatusOf(kB, to), Says("the data of the send of key 'k' at node-a (device 0)"));
  EXPECT_THAT(two_.StatusOf(kA, from),
              Fails(StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer));
  EXPECT_THAT(two_.StatusOf(kA, from), Says("node-b"));
}

TEST_F(EngineEndTest, AMatchedPairEndsOnBothSidesAtTheSendersDeadline) {
  two_.LinkUp();
  const TransferId from = two_.Post(Undefined(Timed(Side::kSend)));
  const TransferId to = two_.Post(Timed(Side::kReceive, 0, 2, Seconds(90)));
  two_.Run();
  two_.Advance(Seconds(60));
  EXPECT_THAT(two_.StatusOf(kA, from),
              Fails(StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer));
  EXPECT_THAT(two_.StatusOf(kA, from), Says("data was not defined within 60 s"));
  EXPECT_THAT(two_.StatusOf(kB, to), Fails(StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer));
  EXPECT_THAT(two_.StatusOf(kB, to), Says("node-a (device 0)"));
  EXPECT_THAT(two_.daemons[kA].unwatch, SizeIs(1));
}

TEST_F(EngineEndTest, ALocalPairEndsTogetherAtEitherDeadline) {
  for (Side late : {Side::kSend, Side::kReceive}) {
    TransferSpec send = Timed(Side::kSend, 0, 1, Seconds(late == Side::kSend ? 5 : 50));
    TransferSpec receive = Timed(Side::kReceive, 0, 1, Seconds(late == Side::kSend ? 50 : 5));
    const TransferId from = two_.Post(Undefined(send));
    const TransferId to = two_.Post(receive);
    two_.Advance(Seconds(5));
    EXPECT_THAT(two_.StatusOf(kA, from), Says("not defined"));
    EXPECT_THAT(two_.StatusOf(kA, to), Says("not defined"));
  }
  two_.ExpectNothingLeft();
}

TEST_F(EngineEndTest, ADeadlineThatPassesInACopyIsIgnored) {
  two_.LinkUp();
  const TransferId from = two_.Post(Timed(Side::kSend));
  const TransferId to = two_.Post(Timed(Side::kReceive));
  two_.Run();
  two_.Advance(Seconds(61));
  EXPECT_THAT(two_.daemons[kB].aborts, IsEmpty());
  EXPECT_FALSE(two_.IsOver(kA, from));
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
  EXPECT_TRUE(two_.StatusOf(kB, to).ok());
}

TEST_F(EngineEndTest, ADeadlineThatPassesInAReceiveAbortsItAndBothSidesLearnIt) {
  two_.LinkUp(false, true);
  const TransferId from = two_.Post(SpecOf(Side::kSend, "k", 0, 2));
  const TransferId to = two_.Post(Timed(Side::kReceive));
  two_.Run();
  two_.Advance(Seconds(60));
  ASSERT_THAT(two_.daemons[kB].aborts, SizeIs(1));
  EXPECT_FALSE(two_.IsOver(kB, to));
  two_.Answer(kB, absl::AbortedError("aborted"));
  EXPECT_THAT(two_.StatusOf(kB, to), Fails(StatusCode::kDeadlineExceeded, Reason::kExecuting));
  two_.Answer(kA, absl::AbortedError("aborted"));
  EXPECT_THAT(two_.StatusOf(kA, from), Fails(StatusCode::kDeadlineExceeded, Reason::kExecuting));
  EXPECT_THAT(two_.StatusOf(kA, from), Says("node-b"));
}

TEST_F(EngineEndTest, ADeadlineThatPassesInASendAbortsBothHalves) {
  two_.LinkUp(false, true);
  const TransferId from = two_.Post(Timed(Side::kSend));
  const TransferId to = two_.Post(SpecOf(Side::kReceive, "k", 0, 2));
  two_.Run();
  two_.Advance(Seconds(60));
  ASSERT_THAT(two_.daemons[kA].aborts, SizeIs(1));
  two_.Answer(kA, absl::AbortedError("aborted"));
  ASSERT_THAT(two_.daemons[kB].aborts, SizeIs(1));
  two_.Answer(kB, absl::AbortedError("aborted"));
  EXPECT_THAT(two_.StatusOf(kB, to), Fails(StatusCode::kDeadlineExceeded, Reason::kExecuting));
  EXPECT_THAT(two_.StatusOf(kA, from), Fails(StatusCode::kDeadlineExceeded, Reason::kExecuting));
  two_.ExpectNothingLeft();
}

TEST_F(EngineEndTest, ASendThatIsOutLongAgoGetsAHangingReceiveAborted) {
  two_.LinkUp(false, true);
  const TransferId from = two_.Post(Timed(Side::kSend));
  two_.Post(SpecOf(Side::kReceive, "k", 0, 2));
  two_.Run();
  two_.Answer(kA);
  two_.Advance(Seconds(60));
  ASSERT_THAT(two_.daemons[kB].aborts, SizeIs(1));
  two_.Answer(kB, absl::AbortedError("aborted"));
  EXPECT_THAT(two_.StatusOf(kA, from), Fails(StatusCode::kDeadlineExceeded, Reason::kExecuting));
}

TEST_F(EngineEndTest, AnAbortThatCameTooLateIsASuccess) {
  two_.LinkUp(false, true);
  const TransferId from = two_.Post(Timed(Side::kSend));
  const TransferId to = two_.Post(Timed(Side::kReceive));
  two_.Run();
  two_.Advance(Seconds(60));
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kB, to).ok());
  two_.Answer(kA, absl::AbortedError("aborted"));
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
}

TEST_F(EngineEndTest, AGoThatCrossesTheSendersDeadlineIsRefused) {
  two_.LinkUp(false, true);
  const TransferId from = two_.Post(Timed(Side::kSend));
  const TransferId to = two_.Post(SpecOf(Side::kReceive, "k", 0, 2));
  two_.Deliver(kA);
  two_.Take(kB);  // Go waits
  two_.now += Seconds(60);
  two_.a().OnTime(two_.now);
  two_.Run();
  EXPECT_THAT(two_.daemons[kA].launches, IsEmpty());
  two_.Answer(kB, absl::AbortedError("aborted"));
  EXPECT_THAT(two_.StatusOf(kA, from),
              Fails(StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer));
  EXPECT_THAT(two_.StatusOf(kB, to), Fails(StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer));
}

// --- Cancel and poison.

TEST_F(EngineEndTest, CancelKnowsWhatIsOver) {
  EXPECT_FALSE(two_.a().Cancel(two_.now, TransferId(99), Cancelled()));
  const TransferId from = two_.Send();
  EXPECT_TRUE(two_.a().Cancel(two_.now, from, Cancelled()));
  EXPECT_FALSE(two_.a().Cancel(two_.now, from, Cancelled()));
  two_.Take(kA);
  EXPECT_THAT(two_.StatusOf(kA, from), Fails(StatusCode::kCancelled, Reason::kCancelled));
}

TEST_F(EngineEndTest, ACancelledUnmatchedReceiveFreesItsKey) {
  const TransferId to = two_.Receive();
  two_.b().Cancel(two_.now, to, Cancelled());
  two_.Receive();  // Post checks
  EXPECT_EQ(two_.b().view().in_flight(), 1u);
}

TEST_F(EngineEndTest, AnOfferedSendEndsWhenItsWithdrawalIsAnswered) {
  two_.LinkUp();
  const TransferId from = two_.Send();
  two_.Run();
  two_.a().Cancel(two_.now, from, Cancelled());
  EXPECT_TRUE(two_.a().Cancel(two_.now, from, Poisoned())) << "the first one counts";
  two_.Take(kA);
  EXPECT_FALSE(two_.IsOver(kA, from));
  two_.Run();
  EXPECT_EQ(two_.StatusOf(kA, from), Cancelled()) << "in its own words";
  two_.ExpectNothingLeft();
}

TEST_F(EngineEndTest, CancellingOneEndOfAMatchedPairEndsBothAndSaysWhere) {
  two_.LinkUp();
  for (int canceller : {kA, kB}) {
    const TransferId from = two_.Post(Undefined(SpecOf(Side::kSend, "k", 0, 2)));
    const TransferId to = two_.Receive();
    two_.Run();
    two_.engine(canceller).Cancel(two_.now, canceller == kA ? from : to, Cancelled());
    two_.Run();
    EXPECT_THAT(two_.StatusOf(kA, from), Fails(StatusCode::kCancelled, Reason::kCancelled));
    EXPECT_THAT(two_.StatusOf(kB, to), Fails(StatusCode::kCancelled, Reason::kCancelled));
    const absl::Status far = canceller == kA ? two_.StatusOf(kB, to) : two_.StatusOf(kA, from);
    EXPECT_THAT(far, Says(canceller == kA ? "node-a (device 0)" : "node-b (device 2)"));
  }
  two_.ExpectNothingLeft();
}

TEST_F(EngineEndTest, CancellingOneEndOfALocalPairEndsBoth) {
  for (Side side : {Side::kSend, Side::kReceive}) {
    const TransferId from = two_.Post(Undefined(SpecOf(Side::kSend, "k", 0, 1)));
    const TransferId to = two_.Post(SpecOf(Side::kReceive, "k", 0, 1));
    two_.a().Cancel(two_.now, side == Side::kSend ? from : to, Poisoned());
    two_.Take(kA);
    EXPECT_THAT(two_.StatusOf(kA, from), Fails(StatusCode::kAborted, Reason::kPoisoned));
    EXPECT_THAT(two_.StatusOf(kA, to), Fails(StatusCode::kAborted, Reason::kPoisoned));
  }
}

TEST_F(EngineEndTest, ACancelAfterTheLaunchIsTooLate) {
  two_.LinkUp();
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Run();
  EXPECT_TRUE(two_.b().Cancel(two_.now, to, Cancelled()));
  EXPECT_TRUE(two_.a().Cancel(two_.now, from, Cancelled()));  // it cannot know: it asks
  two_.Run();
  EXPECT_FALSE(two_.IsOver(kA, from));
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kB, to).ok());
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
}

TEST_F(EngineEndTest, AGoThatCrossesAWithdrawalIsObeyed) {
  two_.LinkUp(false, true);
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Deliver(kA);
  two_.Take(kB);
  two_.a().Cancel(two_.now, from, Cancelled());
  two_.Run();
  ASSERT_THAT(two_.daemons[kA].launches, SizeIs(1));
  two_.Answer(kA);
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
  EXPECT_TRUE(two_.StatusOf(kB, to).ok());
}

TEST_F(EngineEndTest, ALateCancelIsHonouredWhenNothingWasMoved) {
  two_.LinkUp();
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Run();
  two_.a().Cancel(two_.now, from, Cancelled());
  two_.Run();
  two_.Answer(kB, RouteRefused());
  EXPECT_THAT(two_.daemons[kB].launches, SizeIs(1));
  EXPECT_THAT(two_.StatusOf(kA, from), Fails(StatusCode::kCancelled, Reason::kCancelled));
  EXPECT_THAT(two_.StatusOf(kB, to), Fails(StatusCode::kCancelled, Reason::kCancelled));
}

TEST_F(EngineEndTest, APoisonedSendIsRememberedForAReceivePostedLater) {
  two_.LinkUp();
  TransferSpec send = Timed(Side::kSend);
  const TransferId from = two_.Post(send);
  two_.Run();
  two_.a().Cancel(two_.now, from, Poisoned());
  two_.Run();
  EXPECT_THAT(two_.StatusOf(kA, from), Fails(StatusCode::kAborted, Reason::kPoisoned));
  EXPECT_EQ(two_.b().view().waiting_offers(), 0u);
  const TransferId to = two_.Receive();
  two_.Run();
  EXPECT_THAT(two_.StatusOf(kB, to), Fails(StatusCode::kAborted, Reason::kPoisoned));
  EXPECT_THAT(two_.StatusOf(kB, to), Says("node-a (device 0)"));
  EXPECT_THAT(two_.StatusOf(kB, to), Says("the kernel failed"));
  const TransferId again = two_.Receive();  // told once
  two_.Run();
  EXPECT_FALSE(two_.IsOver(kB, again));
}

TEST_F(EngineEndTest, ANewSendReplacesTheMemoryOfAPoisonedOne) {
  two_.LinkUp();
  const TransferId first = two_.Post(Timed(Side::kSend));
  two_.Run();
  two_.a().Cancel(two_.now, first, Poisoned());
  two_.Run();
  const TransferId second = two_.Send();
  two_.Run();
  two_.Receive();
  two_.Run();
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kA, second).ok());
}

TEST_F(EngineEndTest, APoisonedLocalSendIsRememberedToo) {
  const TransferId from = two_.Post(Timed(Side::kSend, 0, 1));
  two_.a().Cancel(two_.now, from, Poisoned());
  two_.Take(kA);
  const TransferId to = two_.Post(SpecOf(Side::kReceive, "k", 0, 1));
  two_.Take(kA);
  EXPECT_THAT(two_.StatusOf(kA, to), Fails(StatusCode::kAborted, Reason::kPoisoned));
  const TransferId second = two_.Post(Timed(Side::kSend, 0, 1));
  two_.a().Cancel(two_.now, second, Poisoned());
  two_.Post(Timed(Side::kSend, 0, 1));  // replaces it; Post checks that the key is free
  two_.Post(SpecOf(Side::kReceive, "k", 0, 1));
  two_.Take(kA);
  EXPECT_THAT(two_.daemons[kA].launches, SizeIs(1));
}

// --- A client's death.

TEST_F(EngineEndTest, TheDeathOfAClientPoisonsWhatItDidNotDefine) {
  two_.LinkUp();
  two_.Post(Undefined(SpecOf(Side::kSend, "matched", 0, 2)));
  two_.Post(Undefined(SpecOf(Side::kSend, "later", 0, 2)));
  const TransferId matched = two_.Receive("matched");
  two_.Run();
  two_.a().EndSession(two_.now, kSession, "killed");
  two_.Run();
  const TransferId later = two_.Receive("later");
  two_.Run();
  for (TransferId id : {matched, later}) {
    EXPECT_THAT(two_.StatusOf(kB, id), Fails(StatusCode::kAborted, Reason::kPoisoned));
    EXPECT_THAT(two_.StatusOf(kB, id), Says("the sending client died before it defined the data"));
    EXPECT_THAT(two_.StatusOf(kB, id), Says("node-a (device 0)"));
  }
  two_.ExpectNothingLeft();
}

TEST_F(EngineEndTest, TheOtherEndOfADefinedSendLearnsThatTheClientIsGone) {
  two_.LinkUp();
  two_.Send("later");
  two_.Run();
  two_.a().EndSession(two_.now, kSession, "killed");
  two_.Run();
  const TransferId to = two_.Receive("later");
  two_.Run();
  EXPECT_THAT(two_.StatusOf(kB, to), Fails(StatusCode::kAborted, Reason::kPeerClientGone));
}

TEST_F(EngineEndTest, TheSenderLearnsThatTheReceivingClientIsGone) {
  two_.LinkUp();
  const TransferId from = two_.Post(Undefined(SpecOf(Side::kSend, "k", 0, 2)));
  two_.Receive();
  two_.Run();
  two_.b().EndSession(two_.now, kSession, "killed");
  two_.Run();
  EXPECT_THAT(two_.StatusOf(kA, from), Fails(StatusCode::kAborted, Reason::kPeerClientGone));
  EXPECT_THAT(two_.StatusOf(kA, from), Says("node-b (device 2)"));
  two_.ExpectNothingLeft();
}

TEST_F(EngineEndTest, ADeathLeavesLaunchesAndOtherSessionsAlone) {
  two_.LinkUp();
  const TransferId from = two_.Send("launched");
  const TransferId to = two_.Receive("launched");
  const TransferId other = two_.Post(SpecOf(Side::kSend, "other", 0, 2), SessionId(2));
  two_.Run();
  two_.a().EndSession(two_.now, kSession, "killed");
  two_.b().EndSession(two_.now, kSession, "killed");
  two_.Run();
  EXPECT_FALSE(two_.IsOver(kA, from));
  EXPECT_FALSE(two_.IsOver(kA, other));
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
  EXPECT_TRUE(two_.StatusOf(kB, to).ok());
  EXPECT_EQ(two_.a().view().in_flight(SessionId(2)), 1u);
}

TEST_F(EngineEndTest, ADeathEndsBothHalvesOfAPairWithinTheSession) {
  const TransferId from = two_.Post(Undefined(SpecOf(Side::kSend, "k", 0, 1)));
  const TransferId to = two_.Post(SpecOf(Side::kReceive, "k", 0, 1));
  two_.a().EndSession(two_.now, kSession, "killed");
  two_.Take(kA);
  EXPECT_FALSE(two_.StatusOf(kA, from).ok());
  EXPECT_FALSE(two_.StatusOf(kA, to).ok());
  two_.ExpectNothingLeft();
}

// A Go overtakes a cancel, the launch hangs at the other end, and the lane here answers well.
TEST_F(EngineEndTest, ASendThatWasCancelledTooLateStillEndsWhatHangsAtItsDeadline) {
  two_.LinkUp(/*mapped=*/false);
  const TransferId from = two_.Post(Timed(Side::kSend, 0, 2, Seconds(1)));
  two_.Run();
  two_.a().Cancel(two_.now, from, Cancelled());
  two_.Take(kA);  // Withdraw is on its way
  two_.Receive();
  ASSERT_TRUE(two_.Deliver(kB));  // Go
  two_.Run();
  ASSERT_THAT(two_.daemons[kA].launches, SizeIs(1));
  ASSERT_THAT(two_.daemons[kB].launches, SizeIs(1));
  two_.Advance(Seconds(2));
  EXPECT_THAT(two_.daemons[kA].aborts, SizeIs(1));
  EXPECT_THAT(two_.daemons[kB].aborts, IsEmpty());
  two_.Answer(kA);
  ASSERT_THAT(two_.daemons[kB].aborts, SizeIs(1));
  two_.Answer(kB, absl::AbortedError("aborted"));
  EXPECT_THAT(two_.StatusOf(kA, from), Fails(StatusCode::kDeadlineExceeded, Reason::kExecuting));
  two_.ExpectNothingLeft();
}

}  // namespace
}  // namespace ferry
