// SPDX-License-Identifier: Apache-2.0
// Peers that come and leave by a reload, and what comes late of those that have left.
#include "tests/daemon/peer_rig.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Is;
using ::testing::IsEmpty;
using testing::kNodeA;
using testing::kNodeC;
using testing::kReset;
using ::testing::Not;
using testing::PeerRig;
using ::testing::SizeIs;

constexpr char kRefusal[] =
    "link between node-b and node-c: node-c is no longer among membership.nodes of node-b";

struct Nodes : PeerRig {
  // As the daemon does it.
  void Leave(PeerId peer) {
    const absl::Status why = peers->Remove(peer);
    driver->RemovePeer(peer, why);
    Turn();
  }
  PeerId Come(const PeerConfig& node) {
    const PeerId peer = driver->AddPeer(node.node, node.devices);
    peers->Add(peer, node);
    Turn();
    return peer;
  }
  bool Lists(const std::string& node) const {
    for (const PeerTable::Row& row : peers->List()) {
      if (row.node == node) return true;
    }
    return false;
  }
  size_t attempts() const { return dialer.dialled.size() + dialer.knocks.size(); }
};

const PeerConfig kC = {"node-c", "10.0.0.3:7411", {GlobalDeviceId(3), GlobalDeviceId(4)}};
const PeerConfig kD = {"node-d", "10.0.0.4:7411", {GlobalDeviceId(5)}};

TEST(PeerNodes, WhoLeavesIsToldWhyAndItsLinkIsLost) {
  Nodes rig;
  const auto stream = rig.NodeCUp();
  rig.PostReceive(rig.Register(64), 64, "k");
  EXPECT_EQ(rig.driver->engine().in_flight(), 1u);
  const Door::ConnectionId socket = 50 + rig.connects.size();
  rig.Leave(kNodeC);
  ASSERT_TRUE(stream->sent.back().refusal.has_value());
  EXPECT_THAT(*stream->sent.back().refusal, Is("PERMISSION_DENIED/NOT_ALLOWED", kRefusal));
  EXPECT_EQ(rig.driver->engine().in_flight(), 0u);
  EXPECT_FALSE(rig.Lists("node-c"));
  EXPECT_TRUE(rig.Lists("node-a"));
  // Our connection to their peer.sock stays until they have taken note.
  EXPECT_THAT(rig.closed, IsEmpty());
  stream->callbacks.on_closed(kReset);
  EXPECT_THAT(rig.closed, ElementsAre(socket));
  EXPECT_FALSE(stream->alive);
}

TEST(PeerNodes, WhoHasOtherDevicesIsToldThat) {
  Nodes rig;
  const auto stream = rig.NodeCUp();
  EXPECT_THAT(rig.peers->Remove(kNodeC, /*comes_again=*/true),
              Is("PERMISSION_DENIED/NOT_ALLOWED",
                 "node-c has other devices now by membership.nodes of node-b"));
  ASSERT_TRUE(stream->sent.back().refusal.has_value());
  EXPECT_THAT(*stream->sent.back().refusal, Is("PERMISSION_DENIED/NOT_ALLOWED", "other devices"));
}

TEST(PeerNodes, WhoLeavesAndHasDialledUsIsToldByTheEndOfItsStream) {
  Nodes rig;
  const auto stream = rig.AcceptNodeA();
  rig.Turn();
  const Door::ConnectionId socket = 50 + rig.connects.size();
  rig.Leave(kNodeA);
  ASSERT_TRUE(stream->closed.has_value());
  EXPECT_THAT(*stream->closed,
              Is("PERMISSION_DENIED/NOT_ALLOWED", "node-a is no longer among membership.nodes"));
  // Who hears first that our connection to its peer.sock has ended, would not know why.
  EXPECT_THAT(rig.closed, IsEmpty());
  rig.Advance(PeerTable::kPartingTimeout);
  EXPECT_THAT(rig.closed, ElementsAre(socket));
}

TEST(PeerNodes, WhatItStillSaysOnPeerSockIsPassedOver) {
  Nodes rig;
  constexpr Door::ConnectionId kTheirs = 90;
  const auto stream = rig.NodeCUp();
  EXPECT_THAT(rig.Ask(kTheirs, PeerSocketHello{"node-c", rig.OurIntroduction(*stream).nonce})
                  .response.error,
              Is("OK"));
  rig.Leave(kNodeC);
  const size_t answers = rig.responses.size();
  rig.HearOnSocket(kTheirs, 1, {Ready{TransferId(1)}});
  EXPECT_THAT(rig.responses, SizeIs(answers));
  EXPECT_THAT(rig.closed, IsEmpty());
}

TEST(PeerNodes, WhatComesLateOfOneThatHasLeftIsNobodys) {
  Nodes rig;
  const auto stream = rig.NodeCUp();
  const size_t attempts = rig.attempts();
  rig.Leave(kNodeC);
  stream->callbacks.on_frame({{{Ready{TransferId(1)}}, {}, 1}});
  stream->callbacks.on_frame({});
  rig.peers->OnTcpOpened(kNodeC, 1, absl::OkStatus());
  rig.peers->OnSocketResponse(kNodeC, 51, {1, absl::OkStatus(), PeerSocketWelcome{}}, {});
  rig.peers->OnSocketClosed(51);
  rig.peers->Send(kNodeC, {Ready{TransferId(1)}});
  rig.peers->Want(kNodeC);
  rig.peers->FetchArena(kNodeC, ArenaId(1), GlobalDeviceId(2));
  rig.Turn();
  EXPECT_EQ(rig.peers->PageWithSlots(kNodeC, true), nullptr);
  EXPECT_EQ(rig.peers->IncarnationOf(kNodeC), Incarnation());
  EXPECT_THAT(rig.peers->StillValid(kNodeC),
              Is("UNAVAILABLE/PEER_UNREACHABLE", "node-c gave up the link"));
  EXPECT_EQ(rig.attempts(), attempts);
}

TEST(PeerNodes, WhoLeavesIsAStrangerUntilItComesAgain) {
  Nodes rig;
  rig.Leave(kNodeA);
  EXPECT_EQ(rig.CallAsNodeA(rig.HelloOf(kNodeA)), nullptr);
  EXPECT_THAT(rig.refused, Is("PERMISSION_DENIED/NOT_ALLOWED",
                              "'node-a' is not among membership.nodes of node-b"));
  EXPECT_EQ(rig.StateOf(kNodeA), "refused");
  EXPECT_EQ(rig.Come({"node-a", "10.0.0.1:7411", {GlobalDeviceId(1)}}), kNodeA);
  EXPECT_EQ(rig.StateOf(kNodeA), "idle");
  ASSERT_NE(rig.AcceptNodeA(), nullptr);
}

TEST(PeerNodes, WhoIsBeingDialledOrCallsWhileItLeavesIsLetGo) {
  Nodes rig;
  const auto dialled = rig.DialNodeC();
  rig.Leave(kNodeC);
  EXPECT_TRUE(dialled->closed.has_value());
  const auto caller = rig.CallAsNodeA(rig.HelloOf(kNodeA));
  rig.Leave(kNodeA);
  ASSERT_TRUE(caller->closed.has_value());
  EXPECT_THAT(*caller->closed, Is("PERMISSION_DENIED/NOT_ALLOWED"));
  caller->callbacks.on_frame(rig.ProofOfNodeA(*caller, rig.HelloOf(kNodeA)));
  rig.Turn();
}

TEST(PeerNodes, WhoComesAgainIsAsNew) {
  Nodes rig;
  const auto before = rig.NodeCUp();
  rig.Leave(kNodeC);
  EXPECT_EQ(rig.Come(kC), kNodeC);
  EXPECT_EQ(rig.StateOf(kNodeC), "idle");
  EXPECT_THAT(rig.RowOf(kNodeC).told, IsEmpty());
  // What comes late is of another link.
  before->callbacks.on_closed(kReset);
  EXPECT_EQ(rig.StateOf(kNodeC), "idle");
  const auto stream = rig.NodeCUp();
  before->callbacks.on_frame({});
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
  const ArenaId arena = rig.Register(64);
  rig.PostSend(arena, 64, "k");
  rig.Turn();
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
}

TEST(PeerNodes, AFurtherOneIsDialledWhenItIsWanted) {
  Nodes rig;
  const PeerId id = rig.Come(kD);
  EXPECT_EQ(id, PeerId(3));
  EXPECT_THAT(rig.dialer.dialled, IsEmpty());
  rig.peers->Want(id);
  rig.Turn();
  EXPECT_THAT(rig.dialer.dialled, ElementsAre(kD.address));
  EXPECT_THAT(rig.peers->StillValid(id), Is("UNAVAILABLE/PEER_UNREACHABLE"));
}

TEST(PeerNodes, AnotherAddressIsDialledAtOnce) {
  Nodes rig;
  const auto stream = rig.NodeCUp();
  rig.peers->Move(kNodeC, "10.0.0.33:7411");
  rig.Turn();
  ASSERT_TRUE(stream->sent.back().refusal.has_value());
  EXPECT_THAT(std::string(stream->sent.back().refusal->message()),
              HasSubstr("node-c is at 10.0.0.33:7411 now"));
  EXPECT_EQ(rig.dialer.dialled.back(), "10.0.0.33:7411");
  EXPECT_EQ(rig.StateOf(kNodeC), "connecting");
}

// A place that drops what comes to it answers a knock after seconds: it holds nothing up.
TEST(PeerNodes, AnotherAddressIsKnockedAtWhileTheFirstOneDoesNotAnswer) {
  Nodes rig;
  rig.peers->Want(kNodeA);
  rig.Turn();
  ASSERT_THAT(rig.dialer.knocks, SizeIs(1));
  rig.peers->Move(kNodeA, "10.0.0.11:7411");
  rig.Turn();
  ASSERT_THAT(rig.dialer.knocks, SizeIs(2));
  EXPECT_EQ(rig.dialer.knocks[1].address, "10.0.0.11:7411");
  rig.dialer.knocks[0].done(absl::DeadlineExceededError("nobody answers at 10.0.0.1:7411"));
  EXPECT_THAT(rig.RowOf(kNodeA).error, Not(HasSubstr("10.0.0.1:7411")));
  rig.Advance(absl::Seconds(5));
  EXPECT_THAT(rig.dialer.knocks, SizeIs(2)) << "the second one is not answered yet";
}

TEST(PeerNodes, AKnockAtOneThatHasLeftSaysNothingOfItsNextComing) {
  Nodes rig;
  rig.peers->Want(kNodeA);
  rig.Turn();
  rig.Leave(kNodeA);
  ASSERT_EQ(rig.Come({"node-a", "10.0.0.1:7411", {GlobalDeviceId(1)}}), kNodeA);
  rig.peers->Want(kNodeA);
  rig.Turn();
  ASSERT_THAT(rig.dialer.knocks, SizeIs(2));
  rig.dialer.knocks[0].done(absl::DeadlineExceededError("nobody answers"));
  rig.Advance(absl::Seconds(5));
  EXPECT_THAT(rig.dialer.knocks, SizeIs(2)) << "the second one is not answered yet";
  EXPECT_THAT(rig.RowOf(kNodeA).error, Not(HasSubstr("nobody answers")));
}

TEST(PeerNodes, AnotherAddressOfOneThatNobodyWantsIsOnlyNoted) {
  Nodes rig;
  rig.peers->Move(kNodeC, "10.0.0.33:7411");
  rig.Turn();
  EXPECT_THAT(rig.dialer.dialled, IsEmpty());
  EXPECT_EQ(rig.RowOf(kNodeC).address, "10.0.0.33:7411");
}

// A visit is no link: its end is no news.
TEST(PeerNodes, AVisitEndsWithTheOneThatLeaves) {
  PeerRig visiting({}, PeerRig::kSecret, {1 << 20, 16, 1000, 4096}, absl::Seconds(5));
  visiting.Turn();
  visiting.Advance(absl::Seconds(6));
  ASSERT_THAT(visiting.dialer.streams, SizeIs(2));
  const absl::Status why = visiting.peers->Remove(kNodeC);
  visiting.driver->RemovePeer(kNodeC, why);
  visiting.peers->Move(kNodeA, "10.0.0.11:7411");
  visiting.Turn();
  for (const auto& stream : visiting.dialer.streams) EXPECT_TRUE(stream->closed.has_value());
}

}  // namespace
}  // namespace ferry
