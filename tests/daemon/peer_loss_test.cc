// SPDX-License-Identifier: Apache-2.0
// How links are kept alive, lost, replaced and opened again.
#include <string>
#include <vector>

#include "daemon/peer/peer_link.h"
#include "daemon/peer/peer_proof.h"
#include "tests/daemon/peer_rig.h"

namespace ferry {
namespace {

using ::testing::HasSubstr;
using testing::Is;
using testing::kNodeA;
using testing::kNodeC;
using testing::kReset;
using testing::PeerRig;
using ::testing::SizeIs;
using testing::StreamRecord;

TEST(PeerLoss, AQuietLinkGetsASignOfLifeEverySecond) {
  PeerRig rig;
  const auto stream = rig.NodeCUpElsewhere();
  const auto alive = [&] { stream->callbacks.on_frame({}); };
  const size_t before = stream->sent.size();
  EXPECT_EQ(rig.peers->OnTime(rig.control.Now()), rig.control.Now() + absl::Seconds(1));
  for (size_t beats = 1; beats <= 10; ++beats) {
    rig.Advance(absl::Seconds(1) - absl::Nanoseconds(1));
    EXPECT_THAT(stream->sent, SizeIs(before + beats - 1));
    rig.Advance(absl::Nanoseconds(1));
    ASSERT_THAT(stream->sent, SizeIs(before + beats));
    EXPECT_FALSE(stream->sent.back().hello.has_value());
    EXPECT_THAT(stream->sent.back().messages, SizeIs(0));
    alive();
  }
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
}

TEST(PeerLoss, WhatIsSaidAnywayIsASignOfLifeToo) {
  PeerRig rig;
  const auto stream = rig.NodeCUpElsewhere();
  rig.Advance(absl::Milliseconds(600));
  rig.peers->Send(kNodeC, {Ready{TransferId(1)}});
  const size_t before = stream->sent.size();
  rig.Advance(absl::Milliseconds(900));
  EXPECT_THAT(stream->sent, SizeIs(before));
  EXPECT_EQ(rig.peers->OnTime(rig.control.Now()), rig.control.Now() + absl::Milliseconds(100));
}

TEST(PeerLoss, APeerThatLivesButDoesNotTakeWhatItIsToldIsLost) {
  PeerRig rig;
  const auto stream = rig.NodeCUpElsewhere();
  stream->waiting = PeerLink::kMostWaiting;
  rig.Advance(absl::Milliseconds(1));
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
  ++stream->waiting;
  rig.Advance(absl::Milliseconds(1));
  EXPECT_EQ(rig.StateOf(kNodeC), "lost");
  EXPECT_THAT(rig.RowOf(kNodeC).error, HasSubstr("does not take what it is told"));
}

TEST(PeerLoss, FiveSecondsOfSilenceMeanLost) {
  PeerRig rig;
  const auto stream = rig.NodeCUpElsewhere();
  rig.Advance(absl::Seconds(3));
  stream->callbacks.on_frame({});
  rig.Advance(absl::Seconds(5) - absl::Nanoseconds(1));
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
  rig.Advance(absl::Nanoseconds(1));
  EXPECT_EQ(rig.StateOf(kNodeC), "lost");
  ASSERT_TRUE(stream->closed.has_value());
  EXPECT_THAT(*stream->closed,
              Is("UNAVAILABLE/PEER_UNREACHABLE", "node-c at 10.0.0.3:7411 was silent for 5 s"));
}

TEST(PeerLoss, ADialThatIsNotAnsweredFailsAfterFiveSeconds) {
  PeerRig rig;
  const auto stream = rig.DialNodeC();
  rig.Advance(absl::Seconds(5) - absl::Nanoseconds(1));
  EXPECT_EQ(rig.StateOf(kNodeC), "connecting");
  rig.Advance(absl::Nanoseconds(1));
  EXPECT_EQ(rig.StateOf(kNodeC), "lost");
  EXPECT_FALSE(stream->alive);
}

TEST(PeerLoss, AClosedLinkIsLostAtOnceAndWhatWasAgreedOnItEnds) {
  PeerRig rig;
  const ArenaId arena = rig.Register(4096);
  const uint64_t send = rig.PostSend(arena, 8, "k");
  const auto stream = rig.NodeCUpElsewhere();
  rig.Hear(stream, {rig.OfferOfNodeC(7, ArenaId(5), 8, "k2"),
                    Matched{MakeTransferId(rig.session().id(), send)}});
  EXPECT_EQ(rig.driver->engine().view().waiting_offers(), 1u);
  EXPECT_EQ(rig.driver->engine().view().in_flight(), 1u);
  stream->callbacks.on_closed(kReset);
  EXPECT_EQ(rig.StateOf(kNodeC), "lost");
  EXPECT_EQ(rig.RowOf(kNodeC).error, "the link to node-c closed: reset");
  EXPECT_FALSE(stream->alive);
  rig.driver->AfterTasks();
  EXPECT_EQ(rig.driver->engine().view().waiting_offers(), 0u);
  EXPECT_EQ(rig.driver->engine().view().in_flight(), 0u);
  ASSERT_TRUE(rig.session().endings().FindFailure(send).has_value());
  EXPECT_THAT(*rig.session().endings().FindFailure(send), Is("UNAVAILABLE/PEER_UNREACHABLE"));
}

TEST(PeerLoss, ADialThatFailsEndsNoTransfer) {
  PeerRig rig;
  const ArenaId arena = rig.Register(4096);
  rig.PostSend(arena, 8, "k");
  rig.Turn();
  ASSERT_THAT(rig.dialer.streams, SizeIs(1));
  rig.dialer.streams[0]->callbacks.on_closed(kReset);
  rig.driver->AfterTasks();
  EXPECT_EQ(rig.driver->engine().view().in_flight(), 1u);
  EXPECT_THAT(rig.RowOf(kNodeC).error, HasSubstr("reset"));
}

TEST(PeerLoss, ALostLinkIsDialledAgainWithBackOffUntilItIsUp) {
  PeerRig rig;
  rig.peers->Want(kNodeC);
  rig.Turn();
  absl::Duration pause = absl::Milliseconds(100);
  for (size_t dials = 1; dials < 9; ++dials) {
    rig.dialer.streams.back()->callbacks.on_closed(kReset);
    EXPECT_EQ(rig.peers->OnTime(rig.control.Now()), rig.control.Now() + pause);
    rig.Advance(pause - absl::Nanoseconds(1));
    ASSERT_THAT(rig.dialer.streams, SizeIs(dials));
    rig.Advance(absl::Nanoseconds(1));
    ASSERT_THAT(rig.dialer.streams, SizeIs(dials + 1));
    pause = std::min(2 * pause, absl::Seconds(3));
  }
  EXPECT_EQ(pause, absl::Seconds(3));
  PeerHello hello = rig.HelloOf(kNodeC);
  hello.boot_id = "another host";
  StreamRecord& stream = *rig.dialer.streams.back();
  PeerFrame frame;
  frame.introduction = hello;
  frame.proof =
      PeerProof(PeerRig::kSecret, PeerSide::kAcceptor, {rig.OurIntroduction(stream), hello});
  stream.callbacks.on_frame(std::move(frame));
  stream.callbacks.on_frame({{}, hello});
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
  rig.dialer.streams.back()->callbacks.on_closed(kReset);
  EXPECT_EQ(rig.peers->OnTime(rig.control.Now()), rig.control.Now() + absl::Milliseconds(100));
}

TEST(PeerLoss, AKnockEndsTheBackOff) {
  PeerRig rig;
  rig.peers->Want(kNodeC);
  rig.Turn();
  for (int i = 0; i < 6; ++i) {
    rig.dialer.streams.back()->callbacks.on_closed(kReset);
    rig.Advance(absl::Seconds(3));
  }
  rig.dialer.streams.back()->callbacks.on_closed(kReset);
  rig.Turn();
  const size_t before = rig.dialer.streams.size();
  EXPECT_THAT(rig.peers->OnKnock("node-c"), Is("OK"));
  rig.Turn();
  EXPECT_THAT(rig.dialer.streams, SizeIs(before + 1));
}

TEST(PeerLoss, ALinkThatTheOtherOneOpenedIsKnockedForWhenItIsLost) {
  PeerRig rig;
  const auto stream = rig.AcceptNodeA();
  stream->callbacks.on_closed(kReset);
  EXPECT_EQ(rig.StateOf(kNodeA), "lost");
  rig.Advance(absl::Milliseconds(100));
  EXPECT_THAT(rig.dialer.knocks, SizeIs(1));
  EXPECT_THAT(rig.dialer.streams, SizeIs(0));
}

TEST(PeerLoss, ASecondLinkFromTheDiallerReplacesTheFirst) {
  PeerRig rig;
  PeerHello hello = rig.HelloOf(kNodeA);
  hello.boot_id = "another host";
  const auto first = rig.AcceptNodeA(hello);
  EXPECT_EQ(rig.StateOf(kNodeA), "up");
  hello.devices[0].name = "other";
  const auto second = rig.AcceptNodeA(hello);
  ASSERT_NE(second, nullptr);
  ASSERT_TRUE(first->closed.has_value());
  EXPECT_THAT(*first->closed, Is("UNAVAILABLE/PEER_UNREACHABLE", "node-a opened a new link"));
  EXPECT_FALSE(first->alive);
  EXPECT_EQ(rig.StateOf(kNodeA), "up");
  ASSERT_EQ(rig.RowOf(kNodeA).told.size(), 1u);
  EXPECT_EQ(rig.RowOf(kNodeA).told[0].name, "other");
  EXPECT_NE(rig.OurIntroduction(*first).nonce, rig.OurIntroduction(*second).nonce);
  // What the first one still has to say is of another time.
  first->callbacks.on_closed(kReset);
  first->callbacks.on_frame({{}, hello});
  EXPECT_EQ(rig.StateOf(kNodeA), "up");
  EXPECT_TRUE(second->alive);
  rig.Advance(absl::Milliseconds(500));
  EXPECT_THAT(rig.dialer.knocks, SizeIs(0));
}

TEST(PeerLoss, WhatALostLinkStillSaysIsNotHeard) {
  PeerRig rig;
  const auto stream = rig.NodeCUpElsewhere();
  rig.Advance(absl::Seconds(5));
  EXPECT_EQ(rig.StateOf(kNodeC), "lost");
  rig.Hear(stream, {rig.OfferOfNodeC(7, ArenaId(5), 8, "k")});
  EXPECT_EQ(rig.driver->engine().view().waiting_offers(), 0u);
  const std::string error = rig.RowOf(kNodeC).error;
  stream->callbacks.on_closed(kReset);
  EXPECT_EQ(rig.RowOf(kNodeC).error, error);
}

TEST(PeerLoss, OurPageIsRevokedBeforeAnybodyHearsOfTheLoss) {
  PeerRig rig;
  const auto stream = rig.NodeCUp();
  rig.Ask(90, PeerSocketHello{"node-c", rig.OurIntroduction(*stream).nonce});
  ASSERT_THAT(rig.responses.back().fds, SizeIs(3));
  auto page = LinkPage::Map(std::move(rig.responses.back().fds[0]));
  ASSERT_TRUE(page.ok()) << page.status();
  rig.Hear(stream, {rig.OfferOfNodeC(7, ArenaId(5), 8, "k")});
  ASSERT_EQ(rig.driver->engine().view().waiting_offers(), 1u);
  EXPECT_FALSE((*page)->Revoked());
  bool asked = false;
  stream->at_close = [&] {
    asked = true;
    EXPECT_TRUE((*page)->Revoked());
    EXPECT_EQ(rig.driver->engine().view().waiting_offers(), 1u);  // the driver does not know yet
  };
  rig.Advance(PeerLink::kSilence);
  EXPECT_TRUE(asked);
  rig.driver->AfterTasks();
  EXPECT_EQ(rig.driver->engine().view().waiting_offers(), 0u);
}

TEST(PeerLoss, TheirPageCountsForNothingAfterwards) {
  PeerRig rig;
  const auto stream = rig.NodeCUp();
  EXPECT_THAT(rig.peers->StillValid(kNodeC), Is("OK"));
  stream->callbacks.on_closed(kReset);
  EXPECT_THAT(rig.peers->StillValid(kNodeC), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_THAT(rig.closed, ::testing::ElementsAre(51u));  // our connection to their peer.sock
}

}  // namespace
}  // namespace ferry
