// SPDX-License-Identifier: Apache-2.0
// Links between daemons of which only one can dial: by the names node-b dials node-c and is dialled
// by node-a.
#include "daemon/peer/peer_proof.h"
#include "daemon/peer/redial.h"
#include "tests/daemon/peer_rig.h"

namespace ferry {
namespace {

using testing::Is;
using testing::kNodeA;
using testing::kNodeC;
using testing::kReset;
using testing::PeerRig;
using ::testing::SizeIs;
using testing::StreamRecord;

PeerHello Elsewhere(PeerId peer) {
  PeerHello hello = PeerRig::HelloOf(peer);
  hello.boot_id = "another host";
  return hello;
}

// Until node-b dials; null if it does not.
std::shared_ptr<StreamRecord> KnockInVain(PeerRig& rig) {
  rig.peers->Want(kNodeA);
  rig.Turn();
  for (int i = 0; i < Redial::kVainKnocks; ++i) {
    EXPECT_THAT(rig.dialer.streams, SizeIs(0));
    if (rig.dialer.knocks.size() != static_cast<size_t>(i + 1)) return nullptr;
    rig.dialer.knocks.back().done(absl::OkStatus());
    rig.Advance(absl::Seconds(3));
  }
  return rig.dialer.streams.empty() ? nullptr : rig.dialer.streams.back();
}

// node-a answers as one that is dialled, and says hello.
void AnswerAsNodeA(const StreamRecord& stream) {
  const PeerHello hello = Elsewhere(kNodeA);
  PeerFrame frame;
  frame.introduction = hello;
  frame.proof =
      PeerProof(PeerRig::kSecret, PeerSide::kAcceptor, {PeerRig::OurIntroduction(stream), hello});
  stream.callbacks.on_frame(std::move(frame));
  stream.callbacks.on_frame({{}, hello});
}

TEST(PeerReverse, WhoseKnocksBringNothingDialsItself) {
  PeerRig rig;
  const auto stream = KnockInVain(rig);
  ASSERT_NE(stream, nullptr);
  EXPECT_EQ(rig.dialer.dialled.back(), "10.0.0.1:7411");
  EXPECT_TRUE(rig.OurIntroduction(*stream).in_reverse);
  AnswerAsNodeA(*stream);
  EXPECT_EQ(rig.StateOf(kNodeA), "up");
  // And does so first when the link is lost, then knocks again.
  stream->callbacks.on_closed(kReset);
  EXPECT_EQ(rig.StateOf(kNodeA), "lost");
  rig.Advance(absl::Seconds(3));
  ASSERT_THAT(rig.dialer.streams, SizeIs(2));
  rig.dialer.streams.back()->callbacks.on_closed(kReset);
  rig.Advance(absl::Seconds(3));
  EXPECT_THAT(rig.dialer.knocks, SizeIs(Redial::kVainKnocks + 1));
}

TEST(PeerReverse, ADialByTheNamesTakesTheOthersPlace) {
  PeerRig rig;
  const auto stream = KnockInVain(rig);
  ASSERT_NE(stream, nullptr);
  ASSERT_NE(rig.AcceptNodeA(Elsewhere(kNodeA)), nullptr);
  EXPECT_EQ(rig.StateOf(kNodeA), "up");
  EXPECT_FALSE(stream->alive);
}

TEST(PeerReverse, ACallerInReverseIsLetInIfOurDialsFail) {
  PeerRig rig;
  PeerHello hello = Elsewhere(kNodeC);
  hello.in_reverse = true;
  EXPECT_EQ(rig.CallAsNodeA(hello), nullptr);
  EXPECT_THAT(rig.refused, Is("UNAVAILABLE/PEER_UNREACHABLE", "its dials have not failed"));
  rig.peers->Want(kNodeC);
  rig.DialNodeC()->callbacks.on_closed(kReset);
  // Also while we try again.
  rig.Advance(absl::Seconds(3));
  ASSERT_THAT(rig.dialer.streams, SizeIs(2));
  ASSERT_NE(rig.AcceptNodeA(hello), nullptr);
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
  EXPECT_FALSE(rig.dialer.streams.back()->alive);
  EXPECT_EQ(rig.AcceptNodeA(hello), nullptr) << "there is a link";
}

TEST(PeerReverse, WhoSaysSoAndIsTheOneThatDialsIsRefused) {
  PeerRig rig;
  PeerHello hello = Elsewhere(kNodeA);
  hello.in_reverse = true;
  EXPECT_EQ(rig.CallAsNodeA(hello), nullptr);
  EXPECT_THAT(rig.refused, Is("PERMISSION_DENIED/NOT_ALLOWED"));
}

// --- Visits: dials of links that nobody wants here.

constexpr absl::Duration kVisitEvery = absl::Seconds(5);

class PeerVisit : public ::testing::Test {
 protected:
  // The visits to node-a, in reverse, and to node-c.
  std::vector<std::shared_ptr<StreamRecord>> Visits() {
    for (int i = 0; i < 7 && rig_.dialer.streams.size() < 2; ++i) rig_.Advance(absl::Seconds(1));
    return rig_.dialer.streams;
  }
  PeerTable::Row RowOf(const std::string& node) {
    for (const PeerTable::Row& row : rig_.peers->List()) {
      if (row.node == node) return row;
    }
    return {};
  }
  // In reverse if it is node-c.
  static PeerHello Visitor(PeerId peer) {
    PeerHello hello = Elsewhere(peer);
    hello.visiting = true;
    hello.in_reverse = peer == kNodeC;
    return hello;
  }
  PeerRig rig_{{}, PeerRig::kSecret, {1 << 20, 16, 1000, 4096}, kVisitEvery};
};

TEST_F(PeerVisit, WhoIsNotWantedIsVisitedNowAndThen) {
  const auto visits = Visits();
  ASSERT_THAT(visits, SizeIs(2));
  EXPECT_THAT(rig_.dialer.dialled, ::testing::ElementsAre("10.0.0.1:7411", "10.0.0.3:7411"));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(rig_.OurIntroduction(*visits[i]).visiting);
    EXPECT_EQ(rig_.OurIntroduction(*visits[i]).in_reverse, i == 0);
    visits[i]->callbacks.on_closed(kReset);
  }
  for (const char* node : {"node-a", "node-c"}) {
    EXPECT_EQ(RowOf(node).state, "idle");
    EXPECT_EQ(RowOf(node).error, "");
  }
  rig_.Advance(kVisitEvery - absl::Milliseconds(1));
  EXPECT_THAT(rig_.dialer.streams, SizeIs(2));
  rig_.Advance(absl::Milliseconds(1));
  EXPECT_THAT(rig_.dialer.streams, SizeIs(4));
}

TEST_F(PeerVisit, WhoeverDoesNotAnswerIsLeftAloneForAWhile) {
  ASSERT_THAT(Visits(), SizeIs(2));
  EXPECT_EQ(RowOf("node-c").state, "idle") << "while it is visited";
  for (int i = 0; i < 5; ++i) rig_.Advance(absl::Seconds(1));
  EXPECT_FALSE(rig_.dialer.streams[0]->alive);
  EXPECT_FALSE(rig_.dialer.streams[1]->alive);
  EXPECT_EQ(RowOf("node-c").state, "idle");
  EXPECT_THAT(rig_.dialer.streams, SizeIs(2));
}

TEST_F(PeerVisit, WhoIsWaitedForIsUp) {
  const auto visits = Visits();
  ASSERT_THAT(visits, SizeIs(2));
  AnswerAsNodeA(*visits[0]);
  EXPECT_EQ(RowOf("node-a").state, "up");
  // From then on it is a link as any other.
  visits[0]->callbacks.on_closed(kReset);
  EXPECT_EQ(RowOf("node-a").state, "lost");
  rig_.Advance(absl::Seconds(1));
  ASSERT_THAT(rig_.dialer.streams, SizeIs(3));
  EXPECT_FALSE(rig_.OurIntroduction(*rig_.dialer.streams.back()).visiting);
}

TEST_F(PeerVisit, WhyAVisitorThatIsLetInFailsIsTold) {
  const auto visits = Visits();
  ASSERT_THAT(visits, SizeIs(2));
  PeerFrame frame;
  frame.introduction = Elsewhere(kNodeA);
  frame.proof = "none";
  visits[0]->callbacks.on_frame(std::move(frame));
  EXPECT_THAT(RowOf("node-a").error, ::testing::HasSubstr("peer.secret_file"));
}

TEST_F(PeerVisit, WhoIsWantedMeanwhileIsDialledAtOnce) {
  const auto visits = Visits();
  ASSERT_THAT(visits, SizeIs(2));
  rig_.peers->Want(kNodeC);
  rig_.Turn();
  EXPECT_FALSE(visits[1]->alive);
  ASSERT_THAT(rig_.dialer.streams, SizeIs(3));
  EXPECT_FALSE(rig_.OurIntroduction(*rig_.dialer.streams.back()).visiting);
  rig_.peers->Want(kNodeA);
  rig_.Turn();
  EXPECT_FALSE(visits[0]->alive);
  EXPECT_THAT(rig_.dialer.knocks, SizeIs(1));
}

TEST_F(PeerVisit, WhoKnocksMeanwhileIsDialledAtOnce) {
  const auto visits = Visits();
  ASSERT_THAT(visits, SizeIs(2));
  EXPECT_THAT(rig_.peers->OnKnock("node-c"), Is("OK"));
  rig_.Turn();
  EXPECT_FALSE(visits[1]->alive);
  ASSERT_THAT(rig_.dialer.streams, SizeIs(3));
  EXPECT_FALSE(rig_.OurIntroduction(*rig_.dialer.streams.back()).visiting);
}

TEST_F(PeerVisit, AVisitorIsLetInWhereItIsWaitedFor) {
  EXPECT_EQ(rig_.CallAsNodeA(Visitor(kNodeA)), nullptr);
  EXPECT_THAT(rig_.refused, Is("UNAVAILABLE/PEER_UNREACHABLE", "nobody at node-b waits for it"));
  EXPECT_EQ(RowOf("node-a").error, "");
  rig_.peers->Want(kNodeA);
  rig_.Turn();
  ASSERT_THAT(rig_.dialer.knocks, SizeIs(1));
  rig_.dialer.knocks.back().done(kReset);
  EXPECT_THAT(RowOf("node-a").error, ::testing::HasSubstr("knock at node-a: reset"));
  ASSERT_NE(rig_.AcceptNodeA(Visitor(kNodeA)), nullptr);
  EXPECT_EQ(RowOf("node-a").state, "up");
  EXPECT_EQ(rig_.CallAsNodeA(Visitor(kNodeA)), nullptr) << "there is a link";
}

TEST_F(PeerVisit, AVisitorInReverseIsLetInIfOurDialsFail) {
  EXPECT_EQ(rig_.CallAsNodeA(Visitor(kNodeC)), nullptr);
  rig_.peers->Want(kNodeC);
  const auto dial = rig_.DialNodeC();
  EXPECT_EQ(rig_.CallAsNodeA(Visitor(kNodeC)), nullptr);
  EXPECT_THAT(rig_.refused, Is("UNAVAILABLE/PEER_UNREACHABLE", "its dials have not failed"));
  dial->callbacks.on_closed(kReset);
  EXPECT_THAT(RowOf("node-c").error, ::testing::HasSubstr("reset"));
  ASSERT_NE(rig_.AcceptNodeA(Visitor(kNodeC)), nullptr);
  EXPECT_EQ(RowOf("node-c").state, "up");
}

TEST_F(PeerVisit, AStrangersVisitIsNotRemembered) {
  PeerHello hello = Visitor(kNodeA);
  hello.node = "node-x";
  EXPECT_EQ(rig_.CallAsNodeA(hello), nullptr);
  EXPECT_THAT(rig_.refused, Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_THAT(rig_.peers->List(), SizeIs(2));
}

}  // namespace
}  // namespace ferry
