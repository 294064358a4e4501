// SPDX-License-Identifier: Apache-2.0
// How links come up. How they are lost: peer_loss_test.cc; what they map: peer_socket_test.cc.
#include <functional>
#include <string>
#include <vector>

#include "tests/daemon/peer_rig.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Is;
using ::testing::IsEmpty;
using testing::kNodeA;
using testing::kNodeB;
using testing::kNodeC;
using testing::kReset;
using testing::PeerRig;
using ::testing::SizeIs;

TEST(PeerLink, NobodyIsDialledBeforeItIsNeeded) {
  PeerRig rig;
  EXPECT_EQ(rig.peers->OnTime(rig.control.Now()), absl::InfiniteFuture());
  EXPECT_THAT(rig.dialer.dialled, IsEmpty());
  EXPECT_THAT(rig.dialer.knocks, IsEmpty());
  EXPECT_THAT(rig.peers->List(), SizeIs(2));
  EXPECT_EQ(rig.StateOf(kNodeA), "idle");
  EXPECT_EQ(rig.StateOf(kNodeC), "idle");
}

TEST(PeerLink, TheSmallerNameDialsAndIntroducesItself) {
  PeerRig rig;
  rig.peers->Want(kNodeC);
  EXPECT_EQ(rig.control.RunAll(), 1u);  // so that OnTime runs once more after this batch of tasks
  rig.peers->OnTime(rig.control.Now());
  EXPECT_THAT(rig.dialer.dialled, ElementsAre("10.0.0.3:7411"));
  EXPECT_EQ(rig.StateOf(kNodeC), "connecting");
  ASSERT_THAT(rig.dialer.streams[0]->sent, SizeIs(1));
  EXPECT_FALSE(rig.dialer.streams[0]->sent[0].hello.has_value()) << "who is there is not known yet";
  ASSERT_TRUE(rig.dialer.streams[0]->sent[0].introduction.has_value());
  const PeerIntroduction& hello = *rig.dialer.streams[0]->sent[0].introduction;
  EXPECT_EQ(hello.protocol.oldest, 3u);
  EXPECT_EQ(hello.protocol.newest, 3u);
  EXPECT_EQ(hello.node, "node-b");
  EXPECT_EQ(hello.incarnation, Incarnation(42));
  EXPECT_EQ(hello.boot_id, testing::BootId());
  EXPECT_EQ(hello.uid, geteuid());
  EXPECT_EQ(hello.peer_socket, "/b/peer.sock");
  EXPECT_EQ(hello.nonce.size(), 32u);
  rig.peers->Want(kNodeC);  // a second wish dials nobody twice
  rig.Turn();
  EXPECT_THAT(rig.dialer.dialled, SizeIs(1));
}

TEST(PeerLink, TheLargerNameKnocksAndIsDialled) {
  PeerRig rig;
  rig.peers->Want(kNodeA);
  rig.Turn();
  EXPECT_THAT(rig.dialer.dialled, IsEmpty());
  ASSERT_THAT(rig.dialer.knocks, SizeIs(1));
  EXPECT_EQ(rig.dialer.knocks[0].address, "10.0.0.1:7411");
  EXPECT_EQ(rig.dialer.knocks[0].node, "node-b");
  const auto stream = rig.AcceptNodeA();
  ASSERT_NE(stream, nullptr);
  EXPECT_EQ(rig.OurIntroduction(*stream).node, "node-b");
  rig.dialer.knocks[0].done(absl::OkStatus());
  rig.Advance(absl::Milliseconds(900));
  EXPECT_THAT(rig.dialer.knocks, SizeIs(1));
}

TEST(PeerLink, AKnockThatFailsIsToldAndTriedAgainWithBackOff) {
  PeerRig rig;
  rig.peers->Want(kNodeA);
  rig.Turn();
  rig.dialer.knocks[0].done(
      Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, "refused"));
  EXPECT_EQ(rig.RowOf(kNodeA).error, "knock at node-a: refused");
  absl::Duration pause = absl::Milliseconds(100);
  for (size_t knocks = 1; knocks < 9; ++knocks) {
    EXPECT_EQ(rig.peers->OnTime(rig.control.Now()), rig.control.Now() + pause);
    rig.Advance(pause - absl::Nanoseconds(1));
    ASSERT_THAT(rig.dialer.knocks, SizeIs(knocks));
    rig.Advance(absl::Nanoseconds(1));
    ASSERT_THAT(rig.dialer.knocks, SizeIs(knocks + 1));
    rig.dialer.knocks.back().done(
        Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, "x"));
    pause = std::min(2 * pause, absl::Seconds(3));
  }
}

TEST(PeerLink, AKnockThatWasHeardButBroughtNobodyIsRepeated) {
  PeerRig rig;
  rig.peers->Want(kNodeA);
  rig.Turn();
  rig.dialer.knocks[0].done(absl::OkStatus());
  rig.Advance(absl::Milliseconds(100));
  EXPECT_THAT(rig.dialer.knocks, SizeIs(2));
}

TEST(PeerLink, AKnockIsForThoseWeDial) {
  PeerRig rig;
  EXPECT_THAT(rig.peers->OnKnock("node-a"), Is("PERMISSION_DENIED/NOT_ALLOWED", "'node-a'"));
  EXPECT_THAT(rig.peers->OnKnock("node-b"), Is("PERMISSION_DENIED/NOT_ALLOWED"));
  EXPECT_THAT(rig.peers->OnKnock("node-x"), Is("PERMISSION_DENIED/NOT_ALLOWED"));
  EXPECT_THAT(rig.peers->OnKnock(""), Is("PERMISSION_DENIED/NOT_ALLOWED"));
  rig.Turn();
  EXPECT_THAT(rig.dialer.dialled, IsEmpty());
  EXPECT_THAT(rig.peers->OnKnock("node-c"), Is("OK"));
  rig.Turn();
  EXPECT_THAT(rig.dialer.dialled, SizeIs(1));
  EXPECT_THAT(rig.peers->OnKnock("node-c"), Is("OK"));  // on its way already
  rig.Turn();
  EXPECT_THAT(rig.dialer.dialled, SizeIs(1));
}

TEST(PeerLink, OfAnotherHostIsUpAfterTheHellos) {
  PeerRig rig;
  rig.NodeCUpElsewhere();
  const PeerTable::Row row = rig.RowOf(kNodeC);
  EXPECT_EQ(row.incarnation, Incarnation(1002));
  EXPECT_FALSE(row.mapped);
  EXPECT_EQ(row.error, "mapped: node-c is on another host");
  EXPECT_THAT(rig.connects, IsEmpty());
  const auto routes =
      rig.driver->engine().Explain(rig.control.Now(), GlobalDeviceId(3), GlobalDeviceId(2), 0);
  ASSERT_THAT(routes, Is("OK"));
  for (const auto& option : *routes) EXPECT_FALSE(option.available);
}

TEST(PeerLink, OfTheSameHostIsUpOnceItsPageIsThere) {
  PeerRig rig;
  const auto stream = rig.GreetNodeC();
  EXPECT_EQ(rig.StateOf(kNodeC), "connecting");
  ASSERT_THAT(rig.connects, SizeIs(1));
  EXPECT_EQ(rig.connects[0].first, kNodeC);
  EXPECT_EQ(rig.connects[0].second, "/node-c/peer.sock");
  ASSERT_THAT(rig.requests, SizeIs(1));
  EXPECT_EQ(rig.requests[0].connection, 51u);
  const auto& hello = std::get<PeerSocketHello>(rig.requests[0].request.body);
  EXPECT_EQ(hello.node, "node-b");
  EXPECT_EQ(hello.asked_nonce, rig.HelloOf(kNodeC).nonce);
  EXPECT_FALSE(rig.peers->StillValid(kNodeC).ok());
  auto page = LinkPage::Create();
  ASSERT_TRUE(page.ok());
  rig.Answer(kNodeC, absl::OkStatus(), PeerSocketWelcome{}, UniqueFd(dup((*page)->memfd())));
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
  EXPECT_TRUE(rig.RowOf(kNodeC).mapped);
  EXPECT_EQ(rig.RowOf(kNodeC).error, "");
  EXPECT_THAT(rig.peers->StillValid(kNodeC), Is("OK"));
  EXPECT_THAT(rig.peers->StillValid(kNodeB), Is("OK"));  // ourselves, always
  EXPECT_FALSE(rig.peers->StillValid(kNodeA).ok());
  (*page)->Revoke();
  EXPECT_THAT(rig.peers->StillValid(kNodeC),
              Is("UNAVAILABLE/PEER_UNREACHABLE", "node-c gave up the link during the copy"));
}

TEST(PeerLink, IsUpWithoutMappingWhereThatDoesNotWork) {
  struct Case {
    const char* what;
    std::function<void(PeerRig&)> arrange;
    std::function<void(PeerRig&)> then;
    std::string error;
  };
  const auto nothing = [](PeerRig&) {};
  const std::vector<Case> cases = {
      {"no peer.sock",
       [](PeerRig& rig) {
         rig.connect_error =
             Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable, "no such file");
       },
       nothing, "no such file"},
      {"the hello is not taken", [](PeerRig& rig) { rig.requests_taken = false; }, nothing,
       "no answer at /node-c/peer.sock"},
      {"a refusal", nothing,
       [](PeerRig& rig) {
         rig.Answer(kNodeC,
                    Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed, "go away"),
                    PeerSocketWelcome{});
       },
       "go away"},
      {"no page", nothing,
       [](PeerRig& rig) { rig.Answer(kNodeC, absl::OkStatus(), PeerSocketWelcome{}); },
       "/node-c/peer.sock gave a wrong answer"},
      {"a page that could fault", nothing,
       [](PeerRig& rig) {
         rig.Answer(kNodeC, absl::OkStatus(), PeerSocketWelcome{},
                    testing::SealedMemfd(4096, F_SEAL_SHRINK));
       },
       "the memfd lacks F_SEAL_SHRINK"},
      {"another answer", nothing,
       [](PeerRig& rig) {
         rig.Answer(kNodeC, absl::OkStatus(), ArenaLent{ArenaId(1), {MemoryKind::kMemfd, 4096}},
                    testing::SealedMemfd(4096));
       },
       "/node-c/peer.sock gave a wrong answer"},
      {"closed", nothing, [](PeerRig& rig) { rig.peers->OnSocketClosed(51); }, "peer.sock closed"},
      {"no answer for 2 s", nothing,
       [](PeerRig& rig) {
         rig.Advance(absl::Seconds(2) - absl::Nanoseconds(1));
         EXPECT_EQ(rig.StateOf(kNodeC), "connecting");
         rig.Advance(absl::Nanoseconds(1));
       },
       "no answer at /node-c/peer.sock"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    PeerRig rig;
    c.arrange(rig);
    rig.GreetNodeC();
    c.then(rig);
    EXPECT_EQ(rig.StateOf(kNodeC), "up");
    EXPECT_FALSE(rig.RowOf(kNodeC).mapped);
    EXPECT_THAT(rig.RowOf(kNodeC).error, HasSubstr(c.error));
    EXPECT_FALSE(rig.peers->StillValid(kNodeC).ok());
  }
}

TEST(PeerLink, OfAnotherUserIsMappedOnlyIfItIsTrusted) {
  const uint32_t other = geteuid() + 1;
  PeerHello hello = PeerRig::HelloOf(kNodeC);
  hello.uid = other;
  PeerRig careful;
  careful.GreetNodeC(hello);
  EXPECT_EQ(careful.StateOf(kNodeC), "up");
  EXPECT_THAT(careful.RowOf(kNodeC).error, HasSubstr("which peer.uids does not list"));
  EXPECT_THAT(careful.connects, IsEmpty());
  PeerRig trusting({other});
  trusting.GreetNodeC(hello);
  EXPECT_THAT(trusting.connects, SizeIs(1));
}

struct BadHello {
  const char* what;
  std::function<void(PeerHello&)> edit;
  const char* name;
  const char* text;
};
const BadHello kBadHellos[] = {
    {"another node", [](PeerHello& hello) { hello.node = "node-x"; },
     "FAILED_PRECONDITION/CONFIG_INVALID", "is 'node-x'; check membership.nodes on both"},
    {"a device less", [](PeerHello& hello) { hello.devices.pop_back(); },
     "FAILED_PRECONDITION/CONFIG_INVALID", "membership.nodes must be the same on both"},
    {"a device more",
     [](PeerHello& hello) {
       hello.devices.push_back({GlobalDeviceId(9), {}});
     },
     "FAILED_PRECONDITION/CONFIG_INVALID", "membership.nodes must be the same on both"},
    {"another device", [](PeerHello& hello) { hello.devices[0].id = GlobalDeviceId(9); },
     "FAILED_PRECONDITION/CONFIG_INVALID", "membership.nodes must be the same on both"},
    {"later versions",
     [](PeerHello& hello) {
       hello.protocol = {4, 5};
     },
     "FAILED_PRECONDITION/PROTOCOL_VERSION",
     "speaks versions 4 to 5 of the protocol between daemons, node-b speaks version 3; update "
     "ferryd at node-b"},
    {"an earlier version",
     [](PeerHello& hello) {
       hello.protocol = {2, 2};
     },
     "FAILED_PRECONDITION/PROTOCOL_VERSION",
     "speaks version 2 of the protocol between daemons, node-b speaks version 3; update ferryd at "
     "node-"},  // the other one
    {"no version",
     [](PeerHello& hello) {
       hello.protocol = {0, 0};
     },
     "FAILED_PRECONDITION/PROTOCOL_VERSION", "speaks version 0 of"},
};

TEST(PeerHello, ABadOneEndsTheLinkThatWeDialled) {
  for (const BadHello& bad : kBadHellos) {
    SCOPED_TRACE(bad.what);
    PeerRig rig;
    PeerHello hello = rig.HelloOf(kNodeC);
    bad.edit(hello);
    const auto stream = rig.GreetNodeC(hello);
    EXPECT_EQ(rig.StateOf(kNodeC), "lost");
    EXPECT_THAT(rig.RowOf(kNodeC).error, HasSubstr(bad.text));
    ASSERT_TRUE(stream->sent.back().refusal.has_value()) << "it is told why";
    EXPECT_THAT(*stream->sent.back().refusal, Is(bad.name, bad.text));
    EXPECT_TRUE(stream->alive) << "until it has read that";
    stream->callbacks.on_closed(kReset);
    EXPECT_FALSE(stream->alive);
    EXPECT_THAT(rig.RowOf(kNodeC).error, HasSubstr(bad.text));
  }
}

TEST(PeerHello, OfADaemonThatSpeaksLaterVersionsTooIsTaken) {
  PeerRig rig;
  PeerHello hello = rig.HelloOf(kNodeC);
  hello.protocol = {2, 7};
  rig.NodeCUp(hello);
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
}

TEST(PeerHello, WhoDoesNotEndARefusedLinkIsNotWaitedFor) {
  PeerRig rig;
  PeerHello hello = rig.HelloOf(kNodeC);
  hello.devices.pop_back();
  const auto stream = rig.GreetNodeC(hello);
  stream->callbacks.on_frame({{}, rig.HelloOf(kNodeC)});
  EXPECT_EQ(rig.StateOf(kNodeC), "lost") << "it is no link any more";
  rig.Advance(PeerTable::kPartingTimeout - absl::Nanoseconds(1));
  EXPECT_TRUE(stream->alive);
  rig.Advance(absl::Nanoseconds(1));
  EXPECT_FALSE(stream->alive);
}

TEST(PeerHello, WhoIsRefusedByTheDiallerSaysWhyInItsWords) {
  const absl::Status why = Error(absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
                                 "link between node-a and node-b: no\tway");
  PeerRig rig;
  PeerFrame refusal;
  refusal.refusal = why;
  auto stream = rig.CallAsNodeA(rig.HelloOf(kNodeA));
  stream->callbacks.on_frame(refusal);
  EXPECT_FALSE(stream->alive);
  EXPECT_EQ(rig.RowOf(kNodeA).error,
            "a caller that did not prove that it is node-a refused the link: link between node-a "
            "and node-b: no\\x09way");
  stream = rig.CallAsNodeA(rig.HelloOf(kNodeA));
  PeerFrame proven = rig.ProofOfNodeA(*stream, rig.HelloOf(kNodeA));
  stream->callbacks.on_frame(std::move(proven));
  stream->callbacks.on_frame(refusal);
  EXPECT_FALSE(stream->alive);
  EXPECT_EQ(rig.StateOf(kNodeA), "lost");
  EXPECT_EQ(rig.RowOf(kNodeA).error, "link between node-a and node-b: no\\x09way");
}

TEST(PeerHello, ARefusalByAStrangerDoesNotTouchTheLinkThatIsUp) {
  PeerRig rig;
  const auto stream = rig.AcceptNodeA();
  const std::string state = rig.StateOf(kNodeA), error = rig.RowOf(kNodeA).error;
  PeerFrame refusal;
  refusal.refusal = kReset;
  rig.CallAsNodeA(rig.HelloOf(kNodeA))->callbacks.on_frame(refusal);
  EXPECT_TRUE(stream->alive);
  EXPECT_EQ(rig.StateOf(kNodeA), state);
  EXPECT_EQ(rig.RowOf(kNodeA).error, error);
}

TEST(PeerHello, StrangersAreShownForAWhile) {
  PeerRig rig;
  PeerHello hello = rig.HelloOf(kNodeA);
  hello.node = "node-x\n";
  rig.CallAsNodeA(hello);
  EXPECT_FALSE(rig.peers->OnKnock("node-y").ok());
  EXPECT_FALSE(rig.peers->OnKnock("node-y").ok()) << "once";
  std::vector<PeerTable::Row> rows = rig.peers->List();
  ASSERT_THAT(rows, SizeIs(4));
  EXPECT_EQ(rows[2].node, "node-x\\x0a");
  EXPECT_EQ(rows[2].state, "refused");
  EXPECT_EQ(rows[2].error, rig.refused.message()) << "in the words that it was told";
  EXPECT_EQ(rows[3].node, "node-y");
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(rig.peers->OnKnock(absl::StrCat("another-", i)).ok());
  }
  rows = rig.peers->List();
  ASSERT_THAT(rows, SizeIs(2 + PeerTable::kMostStrangers));
  EXPECT_EQ(rows.back().node, "another-19");
  rig.Advance(PeerTable::kStrangersKept);
  EXPECT_THAT(rig.peers->List(), SizeIs(2));
}

TEST(PeerHello, ABadOneIsNotAccepted) {
  for (const BadHello& bad : kBadHellos) {
    SCOPED_TRACE(bad.what);
    PeerRig rig;
    PeerHello hello = rig.HelloOf(kNodeA);
    bad.edit(hello);
    const auto stream = rig.AcceptNodeA(hello);
    if (stream != nullptr) {  // it is node-a, which has proven that
      ASSERT_TRUE(stream->closed.has_value());
      EXPECT_THAT(*stream->closed, Is(bad.name, bad.text));
      EXPECT_THAT(rig.RowOf(kNodeA).error, HasSubstr(bad.text));
      EXPECT_EQ(rig.StateOf(kNodeA), "lost");
      continue;
    }
    if (hello.node == "node-a") {
      EXPECT_THAT(rig.refused, Is(bad.name, bad.text));
      EXPECT_THAT(rig.RowOf(kNodeA).error, HasSubstr(bad.text));
    } else {
      EXPECT_THAT(rig.refused, Is("PERMISSION_DENIED/NOT_ALLOWED",
                                  "'node-x' is not among membership.nodes of node-b"));
    }
    EXPECT_EQ(rig.StateOf(kNodeA), "idle");
  }
}

TEST(PeerHello, OfOneThatWeDialIsNotAccepted) {
  PeerRig rig;
  EXPECT_EQ(rig.AcceptNodeA(rig.HelloOf(kNodeC)), nullptr);
  EXPECT_THAT(rig.refused,
              Is("PERMISSION_DENIED/NOT_ALLOWED", "of these names it is node-b that dials"));
}

TEST(PeerHello, ABadOneDoesNotTouchTheLinkThatIsUp) {
  PeerRig rig;
  const auto stream = rig.AcceptNodeA();
  PeerHello hello = rig.HelloOf(kNodeA);
  hello.protocol = {1, 1};
  EXPECT_EQ(rig.AcceptNodeA(hello), nullptr);
  EXPECT_FALSE(stream->closed.has_value());
  EXPECT_TRUE(stream->alive);
}

TEST(PeerHello, IsSaidOnce) {
  PeerRig rig;
  auto stream = rig.NodeCUpElsewhere();
  stream->callbacks.on_frame({{}, rig.HelloOf(kNodeC)});
  ASSERT_TRUE(stream->closed.has_value());
  EXPECT_THAT(*stream->closed, Is("UNAVAILABLE/PROTOCOL_ERROR", "node-c said hello twice"));
  stream = rig.AcceptNodeA();  // its first came with the accept
  stream->callbacks.on_frame({{}, rig.HelloOf(kNodeA)});
  ASSERT_TRUE(stream->closed.has_value());
  EXPECT_THAT(*stream->closed, Is("UNAVAILABLE/PROTOCOL_ERROR", "node-a said hello twice"));
}

TEST(PeerHello, ComesFirst) {
  PeerRig rig;
  const auto stream = rig.ProveNodeC();
  PeerFrame frame;
  frame.messages = {Ready{TransferId(1)}};
  stream->callbacks.on_frame(std::move(frame));
  ASSERT_TRUE(stream->sent.back().refusal.has_value());
  EXPECT_THAT(*stream->sent.back().refusal,
              Is("UNAVAILABLE/PROTOCOL_ERROR", "did not say hello first"));
}

TEST(PeerLink, MessagesThatComeBeforeItIsUpAreKeptInOrder) {
  PeerRig rig;
  const auto stream = rig.GreetNodeC();
  rig.Hear(stream,
           {rig.OfferOfNodeC(7, ArenaId(5), 8, "k1"), rig.OfferOfNodeC(8, ArenaId(5), 8, "k2")});
  rig.Hear(stream,
           {Withdraw{TransferId(7), Error(absl::StatusCode::kCancelled, Reason::kCancelled, "x")}});
  EXPECT_EQ(rig.driver->engine().waiting_offers(), 0u);
  rig.Answer(kNodeC, Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed, "no"),
             PeerSocketWelcome{});
  rig.Turn();
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
  // Both were delivered, the withdrawal after its offer: it is answered.
  EXPECT_EQ(rig.driver->engine().ignored_messages(), 0u);
  std::vector<TransferId> done;
  for (const PeerFrame& frame : stream->sent) {
    for (const PeerMessage& message : frame.messages) {
      if (const Done* answer = std::get_if<Done>(&message)) done.push_back(answer->transfer);
    }
  }
  EXPECT_THAT(done, ElementsAre(TransferId(7)));
}

TEST(PeerLink, MessagesInTheFrameOfTheHelloAreHeard) {
  PeerRig rig;
  PeerHello hello = rig.HelloOf(kNodeC);
  hello.boot_id = "another host";
  const auto stream = rig.ProveNodeC(hello);
  PeerFrame frame{{{rig.OfferOfNodeC(7, ArenaId(5), 8, "k")}, {}, 1}, hello};
  stream->callbacks.on_frame(std::move(frame));
  EXPECT_EQ(rig.driver->engine().waiting_offers(), 1u);
}

TEST(PeerLink, WhatIsSentWithoutALinkIsDropped) {
  PeerRig rig;
  rig.peers->Send(kNodeC, {Ready{TransferId(1)}});
  const auto stream = rig.DialNodeC();
  rig.peers->Send(kNodeC, {Ready{TransferId(1)}});
  EXPECT_THAT(stream->sent, SizeIs(1));  // the introduction
}

}  // namespace
}  // namespace ferry
