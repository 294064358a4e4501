// SPDX-License-Identifier: Apache-2.0
// Links between daemons of which only one can dial: by the names node-b dials node-c and is dialled
// by node-a.
#include "daemon/peer_proof.h"
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
  for (int i = 0; i < PeerTable::kVainKnocks; ++i) {
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
  EXPECT_THAT(rig.dialer.knocks, SizeIs(PeerTable::kVainKnocks + 1));
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

}  // namespace
}  // namespace ferry
