// SPDX-License-Identifier: Apache-2.0
#include "base/retry_after.h"
#include "two_daemons.h"

namespace ferry {
namespace {

using absl::StatusCode;
using testing::IsEmpty;
using testing::SizeIs;

const auto kUnreachable = Fails(StatusCode::kUnavailable, Reason::kPeerUnreachable);

Offer OfferOf(uint64_t id, std::string key, uint64_t source = 0, uint64_t destination = 2) {
  Offer offer;
  offer.transfer = TransferId(id);
  offer.key = {"job", GlobalDeviceId(source), GlobalDeviceId(destination), std::move(key)};
  offer.bytes = 8;
  offer.layout = {{ArenaId(1), 0, 8}};
  return offer;
}

class EnginePeerTest : public testing::Test {
 protected:
  explicit EnginePeerTest(TransferEngine::Options options = {}) : two_(std::move(options)) {}
  // What node-b answers to `offer` of node-a.
  absl::Status Refusal(Offer offer) {
    two_.b().OnMessage(two_.now, PeerId(kA), std::move(offer));
    return LastMessage<Done>(two_, kB).status;
  }
  void ExpectIgnored(int node, PeerMessage message) {
    const uint64_t before = two_.engine(node).view().ignored_messages();
    const PeerId from(1 - node);
    two_.engine(node).OnMessage(two_.now, from, std::move(message));
    EXPECT_EQ(two_.engine(node).view().ignored_messages(), before + 1);
    EXPECT_TRUE(two_.engine(node).TakeOutbox().empty());
  }
  TwoDaemons two_;
};

// --- Loss of the link.

TEST_F(EnginePeerTest, ALostLinkEndsWhatWasAgreedOnItAndNothingElse) {
  two_.LinkUp();
  const TransferId offered = two_.Send("offered");
  TransferSpec undefined = SpecOf(Side::kSend, "matched", 0, 2);
  undefined.defined = false;
  const TransferId matched = two_.Post(undefined);
  const TransferId to_matched = two_.Receive("matched");
  const TransferId to_nobody = two_.Receive("unmatched");
  const TransferId local = two_.Post(SpecOf(Side::kReceive, "local", 2, 3));
  const TransferId from_c = two_.Post(SpecOf(Side::kReceive, "c", 4, 2));
  two_.Run();
  two_.LinkLost();
  EXPECT_THAT(two_.StatusOf(kA, offered), kUnreachable);
  EXPECT_THAT(two_.StatusOf(kA, matched), kUnreachable);
  EXPECT_THAT(two_.StatusOf(kB, to_matched), kUnreachable);
  EXPECT_THAT(two_.StatusOf(kB, to_nobody), kUnreachable);
  EXPECT_THAT(two_.StatusOf(kB, to_nobody), Says("reset by peer"));
  EXPECT_FALSE(two_.IsOver(kB, local));
  EXPECT_FALSE(two_.IsOver(kB, from_c));
  EXPECT_EQ(two_.b().view().waiting_offers(), 0u);
  EXPECT_THAT(two_.daemons[kA].unwatch, SizeIs(1));
}

TEST_F(EnginePeerTest, ALinkThatCouldNotBeOpenedEndsNothing) {
  const TransferId from = two_.Send();
  two_.a().OnPeerLost(two_.now, PeerId(kB), absl::UnavailableError("refused"), false);
  two_.Take(kA);
  EXPECT_FALSE(two_.IsOver(kA, from));
  two_.Receive();
  two_.LinkUp();
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
}

TEST_F(EnginePeerTest, ACopyEndsWithTheLossOnlyWhenItIsAnswered) {
  two_.LinkUp();
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Run();
  two_.LinkLost();
  EXPECT_THAT(two_.StatusOf(kA, from), kUnreachable);
  EXPECT_FALSE(two_.IsOver(kB, to));
  EXPECT_THAT(two_.daemons[kB].aborts, IsEmpty());
  two_.Answer(kB);
  EXPECT_THAT(two_.StatusOf(kB, to), kUnreachable);
  EXPECT_THAT(two_.daemons[kB].to_other, IsEmpty());
  two_.ExpectNothingLeft();
}

TEST_F(EnginePeerTest, UcxLaunchesAreAbortedByTheLossAndEndWhenAnswered) {
  two_.LinkUp(false, true);
  const TransferId from = two_.Send();
  const TransferId to = two_.Receive();
  two_.Run();
  two_.LinkLost();
  EXPECT_THAT(two_.daemons[kA].aborts, SizeIs(1));
  EXPECT_THAT(two_.daemons[kB].aborts, SizeIs(1));
  EXPECT_FALSE(two_.IsOver(kA, from));
  two_.Advance(absl::Hours(1));
  two_.Answer(kA, absl::AbortedError("aborted"));
  two_.Answer(kB);
  EXPECT_THAT(two_.StatusOf(kA, from), kUnreachable);
  EXPECT_THAT(two_.StatusOf(kB, to), kUnreachable);
  EXPECT_THAT(two_.daemons[kA].aborts, SizeIs(1));
}

TEST_F(EnginePeerTest, AfterALossTheNextTransferWantsTheLinkAgainAndWorks) {
  two_.LinkUp();
  two_.Send("old");
  two_.Run();
  two_.LinkLost();
  const TransferId from = two_.Send("new");
  two_.Take(kA);
  EXPECT_THAT(two_.daemons[kA].wanted, SizeIs(1));
  two_.Receive("new");
  two_.LinkUp();
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
}

TEST_F(EnginePeerTest, MessagesNotTakenBeforeALossDoNotGoOverTheNextLink) {
  two_.LinkUp();
  two_.Send();
  two_.a().OnPeerLost(two_.now, PeerId(kB), absl::UnavailableError("reset"), true);
  two_.a().OnPeerUp(two_.now, PeerId(kB), Routes(true, true));
  two_.Take(kA);
  EXPECT_THAT(two_.daemons[kA].to_other, IsEmpty());
}

TEST_F(EnginePeerTest, ALinkOpenedAnewEndsWhatTheOldOneHad) {
  two_.LinkUp();
  const TransferId from = two_.Send();
  two_.Run();
  two_.a().OnPeerUp(two_.now, PeerId(kB), Routes(true, true));
  two_.Take(kA);
  EXPECT_THAT(two_.StatusOf(kA, from), kUnreachable);
}

TEST_F(EnginePeerTest, ARestartedPeerMayUseItsIdsAgain) {
  two_.LinkUp();
  two_.b().OnMessage(two_.now, PeerId(kA), OfferOf(7, "x"));
  two_.b().OnPeerLost(two_.now, PeerId(kA), absl::UnavailableError("reset"), true);
  two_.b().OnPeerUp(two_.now, PeerId(kA), Routes(true, true));
  two_.b().OnMessage(two_.now, PeerId(kA), OfferOf(7, "x"));
  EXPECT_EQ(two_.b().view().waiting_offers(), 1u);
  EXPECT_EQ(two_.b().view().ignored_messages(), 0u);
}

// --- Peers that lie.

TEST_F(EnginePeerTest, OffersBetweenForeignDevicesAreRefused) {
  two_.LinkUp();
  const auto refused = Fails(StatusCode::kInvalidArgument, Reason::kDeviceUnknown);
  EXPECT_THAT(Refusal(OfferOf(1, "x", 4, 2)), refused);   // node-c's device
  EXPECT_THAT(Refusal(OfferOf(2, "x", 2, 3)), refused);   // ours
  EXPECT_THAT(Refusal(OfferOf(3, "x", 0, 4)), refused);   // not to us
  EXPECT_THAT(Refusal(OfferOf(4, "x", 0, 77)), refused);  // nobody's
  EXPECT_EQ(two_.b().view().waiting_offers(), 0u);
}

TEST_F(EnginePeerTest, AnOfferWhoseLayoutDoesNotAddUpIsRefused) {
  two_.LinkUp();
  Offer offer = OfferOf(1, "x");
  offer.layout = {{ArenaId(1), 0, 7}};
  EXPECT_THAT(Refusal(offer), Fails(StatusCode::kInvalidArgument, Reason::kFieldInvalid));
}

TEST_F(EnginePeerTest, ASecondOfferOfAKeyIsRefusedAndTheFirstGoesOnWaiting) {
  two_.LinkUp();
  two_.b().OnMessage(two_.now, PeerId(kA), OfferOf(1, "x"));
  EXPECT_THAT(Refusal(OfferOf(2, "x")), Fails(StatusCode::kAlreadyExists, Reason::kKeyInUse));
  EXPECT_EQ(two_.b().view().waiting_offers(), 1u);
}

TEST_F(EnginePeerTest, AnOfferWithAnIdThatIsTakenIsIgnored) {
  two_.LinkUp();
  two_.b().OnMessage(two_.now, PeerId(kA), OfferOf(1, "x"));
  ExpectIgnored(kB, OfferOf(1, "y"));
  EXPECT_EQ(two_.b().view().waiting_offers(), 1u);
}

TEST_F(EnginePeerTest, MessagesAboutUnknownTransfersAreIgnoredAndCounted) {
  two_.LinkUp();
  const TransferId nobody(404);
  ExpectIgnored(kB, Matched{nobody});
  ExpectIgnored(kB, Ready{nobody});
  ExpectIgnored(kB, Go{nobody, 1, Route::kUcx, 7});
  ExpectIgnored(kB, Done{nobody});
  ExpectIgnored(kB, Withdraw{nobody});
  ExpectIgnored(kB, SendFailed{nobody, 1, {}});
}

TEST_F(EnginePeerTest, MessagesThatDoNotFitTheStateAreIgnoredAndCounted) {
  two_.LinkUp();
  TransferSpec undefined = SpecOf(Side::kSend, "k", 0, 2);
  undefined.defined = false;
  const TransferId from = two_.Post(undefined);
  const TransferId to = two_.Receive();
  two_.Run();
  ExpectIgnored(kA, Matched{from});                        // twice
  ExpectIgnored(kA, Go{from, 1, Route::kUcx, 7});          // not defined
  ExpectIgnored(kB, SendFailed{from, 1, RouteRefused()});  // not launched
  ExpectIgnored(kB, Done{to});                             // a receive
  two_.a().OnDefined(two_.now, from);
  two_.Run();
  ExpectIgnored(kB, Ready{from});                     // twice
  ExpectIgnored(kA, Go{from, 1, Route::kMapped, 7});  // nothing to do for it
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kA, from).ok());
}

TEST_F(EnginePeerTest, AnotherPeerCannotSpeakForThePeerOfATransfer) {
  two_.LinkUp();
  two_.a().OnPeerUp(two_.now, PeerId(2), Routes(false, true));
  const TransferId from = two_.Send();
  two_.Take(kA);
  two_.a().OnMessage(two_.now, PeerId(2), Done{from});
  two_.Take(kA);
  EXPECT_FALSE(two_.IsOver(kA, from));
  EXPECT_EQ(two_.a().view().ignored_messages(), 1u);
}

TEST_F(EnginePeerTest, MessagesFromNobodyAreIgnored) {
  two_.a().OnMessage(two_.now, PeerId(kB), OfferOf(1, "x"));  // no link
  two_.a().OnMessage(two_.now, PeerId(55), OfferOf(1, "x"));
  two_.a().OnPeerUp(two_.now, PeerId(55), {});
  two_.a().OnPeerLost(two_.now, PeerId(55), absl::UnavailableError("x"), true);
  EXPECT_EQ(two_.a().view().ignored_messages(), 2u);
  EXPECT_TRUE(two_.a().TakeOutbox().empty());
}

TEST_F(EnginePeerTest, DoneForDataThatWasNeverDefinedIsNotBelieved) {
  two_.LinkUp();
  TransferSpec undefined = SpecOf(Side::kSend, "k", 0, 2);
  undefined.defined = false;
  const TransferId from = two_.Post(undefined);
  two_.Take(kA);
  two_.a().OnMessage(two_.now, PeerId(kB), Done{from, absl::OkStatus(), Route::kMapped});
  two_.Take(kA);
  EXPECT_THAT(two_.StatusOf(kA, from), Fails(StatusCode::kInternal, Reason::kProtocolError));
}

class EnginePeerBoundTest : public EnginePeerTest {
 protected:
  EnginePeerBoundTest() : EnginePeerTest({.bounds = {.offers_per_peer = 2}}) {}
  static uint64_t OfAnotherSession(uint64_t id) { return MakeTransferId(SessionId(9), id).value(); }
};

TEST_F(EnginePeerBoundTest, OffersOverThePeersBoundAreRefused) {
  two_.LinkUp();
  two_.b().OnMessage(two_.now, PeerId(kA), OfferOf(1, "x"));
  Offer of_another_user = OfferOf(OfAnotherSession(2), "y");
  of_another_user.uid = 1000;
  two_.b().OnMessage(two_.now, PeerId(kA), std::move(of_another_user));
  const absl::Status refusal = Refusal(OfferOf(3, "z"));
  EXPECT_THAT(refusal, Fails(StatusCode::kResourceExhausted, Reason::kQueueFull));
  EXPECT_EQ(RetryAfterOf(refusal), absl::ZeroDuration()) << "none ends by itself";
  EXPECT_EQ(two_.b().view().waiting_offers(), 2u);
  two_.b().OnMessage(two_.now, PeerId(kA), Withdraw{TransferId(1), Cancelled()});
  two_.b().OnMessage(two_.now, PeerId(kA), OfferOf(4, "z"));
  EXPECT_EQ(two_.b().view().waiting_offers(), 2u);
}

class EnginePeerKeptTest : public EnginePeerTest {
 protected:
  EnginePeerKeptTest() : EnginePeerTest({.bounds = {.peer_kept_bytes = 4096}}) {}
  // Of ranges that do not touch.
  static Offer LongOffer(uint64_t id, std::string key, size_t ranges) {
    Offer offer = OfferOf(id, std::move(key));
    std::vector<Range> apart;
    for (size_t i = 0; i < ranges; ++i) apart.push_back({ArenaId(7), 2 * i, 1});
    offer.layout = Layout(std::move(apart));
    offer.bytes = ranges;
    return offer;
  }
};

TEST_F(EnginePeerKeptTest, OffersThatTakeMoreThanTheirPeersBytesAreRefused) {
  two_.LinkUp();
  EXPECT_THAT(Refusal(LongOffer(1, "x", 1000)),
              Fails(StatusCode::kResourceExhausted, Reason::kQueueFull));
  EXPECT_EQ(two_.b().view().RecordBytesFor(PeerId(kA)), 0u);
  two_.b().OnMessage(two_.now, PeerId(kA), LongOffer(2, "x", 50));
  EXPECT_GT(two_.b().view().RecordBytesFor(PeerId(kA)), 50 * sizeof(Range));
  const absl::Status refusal = Refusal(LongOffer(3, "y", 50));
  EXPECT_THAT(refusal, Fails(StatusCode::kResourceExhausted, Reason::kQueueFull));
  EXPECT_EQ(RetryAfterOf(refusal), RetryAfter::kUnknown);
  two_.b().OnMessage(two_.now, PeerId(kA), Withdraw{TransferId(2), Cancelled()});
  EXPECT_EQ(two_.b().view().RecordBytesFor(PeerId(kA)), 0u);
  two_.b().OnMessage(two_.now, PeerId(kA), LongOffer(4, "y", 50));
  EXPECT_EQ(two_.b().view().waiting_offers(), 1u);
}

TEST_F(EnginePeerKeptTest, WhatIsMatchedCountsUntilItIsOver) {
  two_.LinkUp();
  two_.Post(SpecOf(Side::kReceive, "z", 0, 2, 50));
  two_.b().OnMessage(two_.now, PeerId(kA), LongOffer(1, "z", 50));
  const uint64_t matched = two_.b().view().RecordBytesFor(PeerId(kA));
  EXPECT_GT(matched, 50 * sizeof(Range));
  two_.b().OnPeerLost(two_.now, PeerId(kA), absl::UnavailableError("cut"), true);
  EXPECT_EQ(two_.b().view().RecordBytesFor(PeerId(kA)), 0u);
}

TEST_F(EnginePeerBoundTest, AnOfferThatIsMatchedAtOnceNeedsNoRoom) {
  two_.LinkUp();
  two_.b().OnMessage(two_.now, PeerId(kA), OfferOf(1, "x"));
  two_.b().OnMessage(two_.now, PeerId(kA), OfferOf(2, "y"));
  two_.Post(SpecOf(Side::kReceive, "z", 0, 2, 8));
  two_.b().OnMessage(two_.now, PeerId(kA), OfferOf(3, "z"));
  two_.Take(kB);
  EXPECT_THAT(two_.daemons[kB].launches, SizeIs(1));
}

TEST_F(EnginePeerBoundTest, WhatHasEndedTakesNoPlace) {
  two_.LinkUp();
  for (uint64_t id = 1; id <= 5; ++id) {
    two_.b().OnMessage(two_.now, PeerId(kA), OfferOf(id, absl::StrCat("x", id)));
    two_.b().OnMessage(two_.now, PeerId(kA), Withdraw{TransferId(id), Poisoned()});
  }
  EXPECT_EQ(two_.b().view().TombstonesHeld(PeerId(kA)), 5u);
  EXPECT_EQ(two_.b().view().RecordBytesFor(PeerId(kA)), 0u);
  two_.b().OnMessage(two_.now, PeerId(kA), OfferOf(6, "z"));
  EXPECT_EQ(two_.b().view().waiting_offers(), 1u);
}

class EnginePeerShareTest : public EnginePeerTest {
 protected:
  EnginePeerShareTest() : EnginePeerTest({.bounds = {.offers_per_peer = 24}}) { two_.LinkUp(); }
  static Offer OfferOfUser(uint32_t uid, uint32_t session, uint64_t i) {
    Offer offer = OfferOf(MakeTransferId(SessionId(session), i).value(),
                          absl::StrCat("key ", session, " ", i));
    offer.uid = uid;
    return offer;
  }
  // As many offers as the session may have: how many that are.
  uint64_t Fill(uint32_t uid, uint32_t session) {
    for (uint64_t i = 0;; ++i) {
      const size_t before = two_.b().view().waiting_offers();
      two_.b().OnMessage(two_.now, PeerId(kA), OfferOfUser(uid, session, i));
      if (two_.b().view().waiting_offers() == before) return i;
    }
  }
};

TEST_F(EnginePeerShareTest, WhoIsRefusedHearsWhenOneOfItsOwnMayBeOver) {
  const auto refused = [&](uint32_t uid, uint32_t session, absl::Duration deadline) {
    Offer offer = OfferOfUser(uid, session, 99);
    offer.deadline = deadline;
    return RetryAfterOf(Refusal(std::move(offer)));
  };
  const auto offer_for = [&](uint32_t session, uint64_t i, absl::Duration deadline) {
    Offer offer = OfferOfUser(1000 + session, session, i);
    offer.deadline = deadline;
    two_.b().OnMessage(two_.now, PeerId(kA), std::move(offer));
  };
  offer_for(1, 100, absl::Minutes(2));
  offer_for(1, 101, absl::Seconds(40));
  Fill(1001, 1);
  EXPECT_EQ(refused(1001, 1, absl::Seconds(1)), absl::Seconds(40)) << "by the first one's deadline";
  // Another user's that come and go leave no place to this one.
  for (uint64_t i = 0; i < 100; ++i) {
    offer_for(2, i, absl::Minutes(1));
    two_.b().OnMessage(two_.now, PeerId(kA),
                       Withdraw{MakeTransferId(SessionId(2), i), Cancelled()});
  }
  EXPECT_EQ(refused(1001, 1, absl::Seconds(1)), absl::Seconds(40));
  // One of its own has gone, and another one came in its place.
  two_.b().OnMessage(two_.now, PeerId(kA), Withdraw{MakeTransferId(SessionId(1), 0), Cancelled()});
  offer_for(1, 102, absl::Minutes(2));
  EXPECT_EQ(refused(1001, 1, absl::Seconds(1)), absl::Seconds(1));
}

// Of 24 a user has 12 at most, and its first session 6 of them.
TEST_F(EnginePeerShareTest, EachSessionHasWhatItLeavesForOthersOfItsUser) {
  EXPECT_EQ(Fill(1000, 1), 6u);
  EXPECT_EQ(Fill(1000, 2), 3u);
  EXPECT_EQ(Fill(1000, 3), 2u);
  EXPECT_EQ(Fill(1000, 4), 1u);
  const absl::Status refusal = Refusal(OfferOfUser(1000, 1, 99));
  EXPECT_THAT(refusal, Fails(StatusCode::kResourceExhausted, Reason::kQueueFull));
  EXPECT_THAT(refusal, Says("12 offers of node-a wait here already, 12 of them of uid 1000, 6 of "
                            "these of the session"));
  two_.b().OnMessage(two_.now, PeerId(kA), Withdraw{MakeTransferId(SessionId(1), 0), Cancelled()});
  EXPECT_EQ(two_.b().view().waiting_offers(), 11u);
  EXPECT_EQ(Fill(1000, 5), 1u);
}

TEST_F(EnginePeerShareTest, HoweverManySessionsAUserHasOthersHaveRoom) {
  for (uint32_t session = 1; session <= 40; ++session) Fill(1000, session);
  EXPECT_EQ(two_.b().view().waiting_offers(), 12u);
  EXPECT_EQ(Fill(1001, 41), 3u);
  for (uint32_t session = 42; session <= 80; ++session) Fill(1001, session);
  EXPECT_EQ(two_.b().view().waiting_offers(), 18u);
  // Their places come back, whichever user they are of.
  two_.b().OnPeerLost(two_.now, PeerId(kA), absl::UnavailableError("cut"), true);
  two_.LinkUp();
  EXPECT_EQ(Fill(1001, 1), 6u);
}

TEST_F(EnginePeerShareTest, AnOfferSaysWhoseItIs) {
  TransferSpec spec = SpecOf(Side::kSend, "k", 0, 2);
  spec.uid = 1000;
  two_.Post(spec);
  two_.Take(kA);
  EXPECT_EQ(LastMessage<Offer>(two_, kA).uid, 1000u);
}

}  // namespace
}  // namespace ferry
