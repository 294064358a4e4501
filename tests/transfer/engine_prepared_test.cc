// SPDX-License-Identifier: Apache-2.0
// Prepared transfers in the engine: armed once, aborted once, and on ucx agreed anew each firing.
#include "tests/transfer/two_daemons.h"

namespace ferry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TransferSpec PreparedSpec(Side side, std::string key, uint64_t source = 0,
                          uint64_t destination = 2) {
  TransferSpec spec = SpecOf(side, std::move(key), source, destination);
  spec.prepared = true;
  spec.over_timeline = side == Side::kSend ? 7 : 8;  // numbers of prepared batches
  return spec;
}

class EnginePreparedTest : public testing::Test {
 protected:
  // Both halves of `key`, posted.
  void PostPair(uint64_t source = 0, uint64_t destination = 2) {
    send_ = two_.Post(PreparedSpec(Side::kSend, "k", source, destination));
    receive_ = two_.Post(PreparedSpec(Side::kReceive, "k", source, destination));
    two_.Run();
  }
  // Answers each abort of `node` as its lane does.
  void AnswerAborts(int node) {
    auto aborts = std::exchange(two_.daemons[node].aborts, {});
    for (const auto& [id, why] : aborts) {
      uint32_t attempt = 0;
      for (const Launch& launch : two_.daemons[node].launches) {
        if (launch.transfer == id) attempt = launch.attempt;
      }
      two_.engine(node).OnLaunchDone(two_.now, id, attempt, why);
    }
    two_.Run();
  }
  const Launch& LaunchOf(int node) { return two_.daemons[node].launches.back(); }
  void Define(int node, TransferId id) {
    two_.engine(node).OnDefined(two_.now, id);
    two_.Run();
  }
  // One firing on ucx: both words, both launches.
  void FireOnUcx(bool source_first) {
    Define(source_first ? kA : kB, source_first ? send_ : receive_);
    Define(source_first ? kB : kA, source_first ? receive_ : send_);
    two_.Answer(kA);
    two_.Answer(kB);
  }

  TwoDaemons two_;
  TransferId send_, receive_;
};

TEST_F(EnginePreparedTest, ALocalPairIsArmedAndStays) {
  PostPair(0, 1);
  ASSERT_THAT(two_.daemons[kA].launches, SizeIs(1));
  const Launch& launch = LaunchOf(kA);
  ASSERT_TRUE(launch.armed.has_value());
  EXPECT_EQ(launch.route, Route::kLocal);
  EXPECT_EQ(launch.armed->batch, 8u);
  EXPECT_EQ(launch.armed->source, send_);
  EXPECT_EQ(launch.armed->source_batch, 7u);
  EXPECT_STREQ(two_.a().view().Find(send_)->state, "armed");
  two_.Advance(absl::Hours(24));  // no deadline holds any more
  EXPECT_THAT(two_.daemons[kA].ended, IsEmpty());
  EXPECT_THAT(two_.daemons[kA].watches, IsEmpty());
}

TEST_F(EnginePreparedTest, CancelEndsAnArmedLocalPairWhenTheLaneHasLetGo) {
  PostPair(0, 1);
  EXPECT_TRUE(two_.a().Cancel(two_.now, send_, Cancelled()));
  EXPECT_TRUE(two_.a().Cancel(two_.now, receive_, Poisoned()));  // too late to be the reason
  two_.Run();
  EXPECT_THAT(two_.daemons[kA].aborts, SizeIs(1));
  EXPECT_THAT(two_.daemons[kA].ended, IsEmpty());
  AnswerAborts(kA);
  EXPECT_THAT(two_.StatusOf(kA, send_), Fails(absl::StatusCode::kCancelled, Reason::kCancelled));
  EXPECT_THAT(two_.StatusOf(kA, receive_),
              AllOf(Fails(absl::StatusCode::kCancelled, Reason::kCancelled), Says("the send of")));
  two_.ExpectNothingLeft();
}

TEST_F(EnginePreparedTest, OnMappedBothLanesAreArmed) {
  two_.LinkUp();
  PostPair();
  ASSERT_THAT(two_.daemons[kA].launches, SizeIs(1));
  ASSERT_THAT(two_.daemons[kB].launches, SizeIs(1));
  EXPECT_EQ(LaunchOf(kA).role, LaunchRole::kSend);
  EXPECT_EQ(LaunchOf(kB).role, LaunchRole::kCopy);
  ASSERT_TRUE(LaunchOf(kA).armed && LaunchOf(kB).armed);
  EXPECT_EQ(LaunchOf(kA).armed->slot, 1u);
  EXPECT_EQ(LaunchOf(kB).armed->slot, 1u);
  two_.Advance(absl::Hours(24));
  EXPECT_THAT(two_.daemons[kB].ended, IsEmpty());
}

TEST_F(EnginePreparedTest, EachEndCanCancelOnMapped) {
  for (int node : {kA, kB}) {
    two_ = TwoDaemons();
    two_.LinkUp();
    PostPair();
    EXPECT_TRUE(two_.engine(node).Cancel(two_.now, node == kA ? send_ : receive_, Cancelled()));
    two_.Run();
    AnswerAborts(kB);  // the destination's lane lets go first
    ASSERT_THAT(two_.daemons[kA].aborts, SizeIs(1));
    EXPECT_FALSE(two_.IsOver(kA, send_));
    AnswerAborts(kA);
    for (int end : {kA, kB}) {
      const absl::Status status = two_.StatusOf(end, end == kA ? send_ : receive_);
      EXPECT_THAT(status, Fails(absl::StatusCode::kCancelled, Reason::kCancelled));
      if (end == node) continue;
      EXPECT_THAT(status, Says(node == kA ? "the send of" : "the receive of"));
    }
    two_.ExpectNothingLeft();
  }
}

TEST_F(EnginePreparedTest, BothEndsMustBePrepared) {
  two_.LinkUp();
  for (bool send : {true, false}) {
    TransferSpec sends = PreparedSpec(Side::kSend, "k");
    TransferSpec receives = PreparedSpec(Side::kReceive, "k");
    (send ? receives : sends).prepared = false;
    send_ = two_.Post(sends);
    receive_ = two_.Post(receives);
    two_.Run();
    const char* const text =
        send ? "the send is prepared, the receive is not" : "the receive is prepared, the send is";
    for (int node : {kA, kB}) {
      EXPECT_THAT(two_.StatusOf(node, node == kA ? send_ : receive_),
                  AllOf(Fails(absl::StatusCode::kFailedPrecondition, Reason::kTransferMismatch),
                        Says(text)));
    }
  }
  two_.ExpectNothingLeft();
}

TEST_F(EnginePreparedTest, OnUcxEachFiringIsAgreedAndLaunched) {
  two_.LinkUp(/*mapped=*/false);
  PostPair();
  two_.Advance(absl::Hours(24));
  EXPECT_STREQ(two_.a().view().Find(send_)->state, "armed");
  EXPECT_STREQ(two_.b().view().Find(receive_)->state, "armed");
  for (uint64_t n = 1; n <= 4; ++n) {
    ASSERT_EQ(two_.daemons[kA].watches.back().value, n);
    ASSERT_EQ(two_.daemons[kB].watches.back().value, n);
    EXPECT_TRUE(two_.daemons[kA].watches.back().prepared);
    FireOnUcx(n % 2 == 0);
    EXPECT_FALSE(LaunchOf(kA).armed.has_value());
    EXPECT_EQ(LaunchOf(kA).tag, LaunchOf(kB).tag);
    for (int node : {kA, kB}) {
      ASSERT_THAT(two_.daemons[node].fired, SizeIs(n));
      EXPECT_EQ(two_.daemons[node].fired.back().firing, n);
    }
    EXPECT_THAT(two_.daemons[kA].ended, IsEmpty());
  }
  EXPECT_EQ(two_.daemons[kA].fired.back().batch, 7u);
  EXPECT_EQ(two_.daemons[kB].fired.back().batch, 8u);
  EXPECT_EQ(two_.a().view().ignored_messages() + two_.b().view().ignored_messages(), 0u);
}

TEST_F(EnginePreparedTest, NothingIsLaunchedBeforeBothWordsOnUcx) {
  two_.LinkUp(false);
  PostPair();
  Define(kA, send_);
  EXPECT_THAT(two_.daemons[kA].launches, IsEmpty());
  EXPECT_THAT(two_.daemons[kB].launches, IsEmpty());
  Define(kB, receive_);
  EXPECT_THAT(two_.daemons[kA].launches, SizeIs(1));
  EXPECT_THAT(two_.daemons[kB].launches, SizeIs(1));
}

TEST_F(EnginePreparedTest, OnUcxADestinationThatIsDoneFirstWaitsForNobody) {
  two_.LinkUp(false);
  PostPair();
  Define(kB, receive_);
  Define(kA, send_);
  two_.Answer(kB);  // the source's own answer is late
  EXPECT_THAT(two_.daemons[kB].fired, SizeIs(1));
  EXPECT_THAT(two_.daemons[kA].fired, IsEmpty());
  Define(kB, receive_);  // wants the next one
  EXPECT_THAT(two_.daemons[kB].launches, SizeIs(1));
  two_.Answer(kA);
  EXPECT_THAT(two_.daemons[kA].fired, SizeIs(1));
  EXPECT_THAT(two_.daemons[kA].launches, SizeIs(1));
  Define(kA, send_);
  EXPECT_THAT(two_.daemons[kA].launches, SizeIs(2));
  two_.Answer(kA);
  two_.Answer(kB);
  EXPECT_THAT(two_.daemons[kA].fired, SizeIs(2));
  EXPECT_THAT(two_.daemons[kB].fired, SizeIs(2));
}

TEST_F(EnginePreparedTest, OnUcxItEndsBetweenFiringsAndInOne) {
  for (const bool fired : {false, true}) {
    for (int node : {kA, kB}) {
      two_ = TwoDaemons();
      two_.LinkUp(false);
      PostPair();
      FireOnUcx(true);
      if (fired) {
        Define(kA, send_);
        Define(kB, receive_);
      }
      two_.engine(node).EndSession(two_.now, kSession, "killed");
      two_.Run();
      AnswerAborts(kB);
      AnswerAborts(kA);
      for (int end : {kA, kB}) {
        EXPECT_THAT(two_.StatusOf(end, end == kA ? send_ : receive_),
                    Fails(absl::StatusCode::kAborted, Reason::kPeerClientGone));
      }
      two_.ExpectNothingLeft();
    }
  }
}

TEST_F(EnginePreparedTest, AFiringThatIsOverAfterAWithdrawalIsNotFollowedByAnother) {
  two_.LinkUp(false);
  PostPair();
  Define(kA, send_);
  Define(kB, receive_);
  two_.a().EndSession(two_.now, kSession, "killed");
  two_.Take(kA);
  const PeerMessage withdraw = std::move(two_.daemons[kA].to_other.back());
  two_.daemons[kA].to_other.clear();
  two_.b().OnLaunchDone(two_.now, receive_, LaunchOf(kB).attempt, absl::OkStatus());
  two_.Run();  // Done, of the firing
  two_.a().OnLaunchDone(two_.now, send_, LaunchOf(kA).attempt, absl::OkStatus());
  two_.Run();
  EXPECT_THAT(two_.daemons[kA].fired, SizeIs(1));
  EXPECT_THAT(two_.daemons[kB].fired, SizeIs(1));
  EXPECT_THAT(two_.daemons[kA].watches, SizeIs(1));
  two_.b().OnMessage(two_.now, PeerId(kA), PeerMessage(withdraw));
  two_.Run();
  EXPECT_THAT(two_.StatusOf(kA, send_), Fails(absl::StatusCode::kAborted, Reason::kPeerClientGone));
  EXPECT_TRUE(two_.IsOver(kB, receive_));
  two_.ExpectNothingLeft();
}

TEST_F(EnginePreparedTest, OnUcxAFiringThatWasOverBeforeTheEndCountsAtBothEnds) {
  two_.LinkUp(false);
  PostPair();
  Define(kA, send_);
  Define(kB, receive_);
  two_.Answer(kB);  // over there; the source's lane has not answered
  two_.b().Cancel(two_.now, receive_, Cancelled());
  two_.Run();
  AnswerAborts(kA);
  EXPECT_THAT(two_.daemons[kA].fired, SizeIs(1));
  EXPECT_THAT(two_.daemons[kB].fired, SizeIs(1));
  EXPECT_TRUE(two_.IsOver(kA, send_));
  EXPECT_TRUE(two_.IsOver(kB, receive_));
}

TEST_F(EnginePreparedTest, WhereMappedCannotBeArmedTheNextRouteIs) {
  two_.LinkUp();
  PostPair();
  two_.Answer(kB, RouteRefused());
  ASSERT_THAT(two_.daemons[kB].fallbacks, SizeIs(1));
  EXPECT_EQ(two_.daemons[kB].fallbacks[0].to, Route::kUcx);
  AnswerAborts(kA);  // it was armed there
  EXPECT_TRUE(two_.a().view().Find(send_)->fires);
  FireOnUcx(true);
  FireOnUcx(false);
  EXPECT_THAT(two_.daemons[kA].fired, SizeIs(2));
  EXPECT_THAT(two_.daemons[kB].fired, SizeIs(2));
  EXPECT_EQ(two_.a().view().Find(send_)->route, Route::kUcx);
  EXPECT_EQ(two_.a().view().ignored_messages() + two_.b().view().ignored_messages(), 0u);
}

TEST_F(EnginePreparedTest, WhyALaterLaunchFailsIsNotThatAnEarlierOneWasLeft) {
  two_.LinkUp();
  PostPair();
  two_.Answer(kB, RouteRefused());
  AnswerAborts(kA);
  Define(kA, send_);
  Define(kB, receive_);
  two_.Answer(kA, RouteRefused());
  AnswerAborts(kB);
  for (int end : {kA, kB}) {
    EXPECT_THAT(two_.StatusOf(end, end == kA ? send_ : receive_),
                Fails(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable));
  }
  two_.ExpectNothingLeft();
}

// No transport does so: what is armed stays until it is aborted.
TEST_F(EnginePreparedTest, AnArmedHalfThatItsLaneLetsGoOfUnaskedHasFiredNothing) {
  two_.LinkUp();
  PostPair();
  two_.Answer(kB);
  AnswerAborts(kA);
  for (int end : {kA, kB}) {
    EXPECT_THAT(two_.StatusOf(end, end == kA ? send_ : receive_),
                AllOf(Fails(absl::StatusCode::kInternal, Reason::kInternal), Says("let go")));
    EXPECT_THAT(two_.daemons[end].fired, IsEmpty());
  }
  two_.ExpectNothingLeft();
}

TEST_F(EnginePreparedTest, TheSourcesLaneMayRefuseMappedToo) {
  two_.LinkUp();
  PostPair();
  two_.Answer(kA, RouteRefused());
  AnswerAborts(kB);
  ASSERT_THAT(two_.daemons[kB].fallbacks, SizeIs(1));
  EXPECT_TRUE(two_.b().view().Find(receive_)->fires);
  FireOnUcx(false);
  EXPECT_THAT(two_.daemons[kA].fired, SizeIs(1));
  EXPECT_THAT(two_.daemons[kB].fired, SizeIs(1));
}

TEST_F(EnginePreparedTest, AfterAFiringARouteThatFailsIsTheEnd) {
  TransferEngine::Options options;
  options.order = {Route::kUcx, Route::kMapped};
  two_ = TwoDaemons(options);
  two_.LinkUp();
  PostPair();
  FireOnUcx(true);
  Define(kA, send_);
  Define(kB, receive_);
  two_.Answer(kB, RouteRefused());
  two_.Answer(kA, absl::AbortedError("nobody receives"));
  for (int end : {kA, kB}) {
    EXPECT_THAT(two_.StatusOf(end, end == kA ? send_ : receive_),
                Fails(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable));
  }
  two_.ExpectNothingLeft();
}

TEST_F(EnginePreparedTest, ALostLinkEndsBothEndsWhenTheirLanesHaveLetGo) {
  two_.LinkUp();
  PostPair();
  two_.LinkLost();
  EXPECT_THAT(two_.daemons[kA].ended, IsEmpty());
  EXPECT_THAT(two_.daemons[kB].ended, IsEmpty());
  AnswerAborts(kA);
  AnswerAborts(kB);
  for (int end : {kA, kB}) {
    EXPECT_THAT(two_.StatusOf(end, end == kA ? send_ : receive_),
                Fails(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable));
  }
  two_.ExpectNothingLeft();
}

TEST_F(EnginePreparedTest, ABatchEndsAsOne) {
  two_.LinkUp();
  // Armed within the daemon, armed with the peer, and waiting for a receive that never comes.
  const TransferId first =
      two_.PostBatch({PreparedSpec(Side::kSend, "here", 0, 1), PreparedSpec(Side::kSend, "there"),
                      PreparedSpec(Side::kSend, "nobody")});
  const TransferId here = two_.Post(PreparedSpec(Side::kReceive, "here", 0, 1));
  const TransferId there = two_.Post(PreparedSpec(Side::kReceive, "there"));
  two_.Run();
  two_.b().Cancel(two_.now, there, Cancelled());
  two_.Run();
  AnswerAborts(kB);
  AnswerAborts(kA);
  two_.Run();
  AnswerAborts(kA);
  for (uint64_t i : {0, 2}) {
    EXPECT_THAT(two_.StatusOf(kA, TransferId(first.value() + i)),
                AllOf(Fails(absl::StatusCode::kCancelled, Reason::kCancelled),
                      Says("its prepared batch has ended with the send of key 'there'")));
  }
  EXPECT_THAT(two_.StatusOf(kA, here), Says("its prepared batch has ended"));
  two_.ExpectNothingLeft();
}

TEST_F(EnginePreparedTest, ABatchHasOneSlotWhichComesBack) {
  two_.LinkUp();
  const TransferId first =
      two_.PostBatch({PreparedSpec(Side::kSend, "a"), PreparedSpec(Side::kSend, "b")});
  two_.Post(PreparedSpec(Side::kSend, "c"));
  two_.Take(kA);
  std::vector<uint32_t> slots;
  for (const PeerMessage& message : two_.daemons[kA].to_other) {
    slots.push_back(std::get<Offer>(message).slot);
  }
  EXPECT_THAT(slots, ElementsAre(1, 1, 2));
  two_.Run();
  two_.a().Cancel(two_.now, first, Cancelled());
  two_.Run();
  two_.Post(PreparedSpec(Side::kSend, "d"));
  EXPECT_EQ(LastMessage<Offer>(two_, kA).slot, 1u);
}

TEST_F(EnginePreparedTest, WithoutASlotAnOfferSaysSo) {
  two_.LinkUp();
  for (uint32_t i = 0; i < kPreparedSlots; ++i) {
    two_.Post(PreparedSpec(Side::kSend, absl::StrCat("k", i)));
  }
  EXPECT_EQ(LastMessage<Offer>(two_, kA).slot, kPreparedSlots);
  two_.Post(PreparedSpec(Side::kSend, "one more"));
  EXPECT_EQ(LastMessage<Offer>(two_, kA).slot, 0u);
  receive_ = two_.Post(PreparedSpec(Side::kReceive, "one more"));
  two_.Run();
  EXPECT_EQ(LaunchOf(kB).armed->slot, 0u);
  two_.Answer(kB, RouteRefused());  // as the driver does
  EXPECT_THAT(two_.daemons[kA].launches, IsEmpty());
  EXPECT_EQ(two_.daemons[kB].watches.back().transfer, receive_);
}

TEST_F(EnginePreparedTest, UnmatchedOnesHaveTheirDeadline) {
  two_.LinkUp();
  TransferSpec spec = PreparedSpec(Side::kReceive, "k");
  spec.deadline = two_.now + absl::Seconds(5);
  receive_ = two_.Post(spec);
  two_.Advance(absl::Seconds(6));
  EXPECT_THAT(two_.StatusOf(kB, receive_),
              Fails(absl::StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer));
}

TEST_F(EnginePreparedTest, ADoneOfAFiringThatWasNotIsNonsense) {
  two_.LinkUp(false);
  PostPair();
  two_.a().OnMessage(two_.now, PeerId(kB), Done{send_, absl::OkStatus(), Route::kUcx});
  EXPECT_EQ(two_.a().view().ignored_messages(), 1u);
  two_.Run();
  EXPECT_THAT(two_.daemons[kA].fired, IsEmpty());
  EXPECT_THAT(two_.daemons[kA].ended, IsEmpty());
}

}  // namespace
}  // namespace ferry
