// SPDX-License-Identifier: Apache-2.0
// Peers that come and leave while transfers are posted.
#include "engine_groups.h"
#include "transfer/device_owners.h"
#include "transfer/members.h"

namespace ferry {
namespace {

using absl::StatusCode;
using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const auto kLeft = Fails(StatusCode::kUnavailable, Reason::kPeerUnreachable);

absl::Status Removed() {
  return Error(StatusCode::kPermissionDenied, Reason::kNotAllowed, "node-b was taken off the list");
}
const std::vector<GlobalDeviceId> kDevicesOfB = {GlobalDeviceId(2), GlobalDeviceId(3)};

class EngineNodesTest : public testing::Test {
 protected:
  void RemoveB() {
    two_.a().RemovePeer(two_.now, PeerId(kB), Removed());
    two_.Take(kA);
  }
  // As its daemon would see it: the link is lost.
  void LoseAAtB() {
    two_.b().OnPeerLost(two_.now, PeerId(kA), absl::UnavailableError("it was refused"), true);
    two_.daemons[kA].to_other.clear();
    two_.Take(kB);
    two_.daemons[kB].to_other.clear();
  }
  absl::Status CheckAtA(const TransferSpec& spec) {
    const auto errors = two_.a().Check({spec});
    return errors.empty() ? absl::OkStatus() : errors[0].status;
  }
  TwoDaemons two_;
};

TEST_F(EngineNodesTest, WhatIsPostedWithOneThatLeavesEndsAndNothingElse) {
  two_.LinkUp();
  const TransferId offered = two_.Send("offered");
  TransferSpec undefined = SpecOf(Side::kSend, "matched", 0, 2);
  undefined.defined = false;
  const TransferId matched = two_.Post(undefined);
  two_.Receive("matched");
  const TransferId alone = two_.Post(SpecOf(Side::kReceive, "alone", 2, 0));
  const TransferId theirs = two_.Post(SpecOf(Side::kSend, "theirs", 3, 1));
  const TransferId local = two_.Post(SpecOf(Side::kReceive, "local", 0, 1));
  const TransferId to_c = two_.Post(SpecOf(Side::kSend, "c", 0, 4));
  two_.Run();
  ASSERT_EQ(two_.a().view().waiting_offers(), 1u);
  RemoveB();
  for (const TransferId gone : {offered, matched, alone}) {
    EXPECT_THAT(two_.StatusOf(kA, gone), kLeft);
    EXPECT_THAT(two_.StatusOf(kA, gone), Says("node-b was taken off the list"));
  }
  EXPECT_FALSE(two_.IsOver(kA, local));
  EXPECT_FALSE(two_.IsOver(kA, to_c));
  EXPECT_EQ(two_.a().view().in_flight(), 2u);
  EXPECT_EQ(two_.a().view().waiting_offers(), 0u);
  EXPECT_EQ(two_.a().view().RecordBytesFor(PeerId(kB)), 0u);
  EXPECT_THAT(two_.daemons[kA].unwatch, SizeIs(1));
  // Nobody is heard or answered under that id.
  const uint64_t ignored = two_.a().view().ignored_messages();
  two_.a().OnMessage(two_.now, PeerId(kB), Ready{theirs});
  EXPECT_EQ(two_.a().view().ignored_messages(), ignored + 1);
  two_.a().OnPeerUp(two_.now, PeerId(kB), Routes(true, true));
  two_.Take(kA);
  EXPECT_THAT(two_.daemons[kA].to_other, IsEmpty());
}

TEST_F(EngineNodesTest, WhatHasOnlyWaitedForALinkEndsToo) {
  const TransferId send = two_.Send(), receive = two_.Post(SpecOf(Side::kReceive, "r", 2, 0));
  RemoveB();
  for (const TransferId gone : {send, receive}) {
    EXPECT_THAT(two_.StatusOf(kA, gone), kLeft);
    EXPECT_THAT(two_.StatusOf(kA, gone), Says("node-b was taken off the list"));
  }
  EXPECT_THAT(two_.daemons[kA].wanted, IsEmpty());
  EXPECT_EQ(two_.a().NextDeadline(), absl::InfiniteFuture());
}

TEST_F(EngineNodesTest, WhatHasEndedWithoutALinkIsForgottenToo) {
  const TransferId cancelled = two_.Post(SpecOf(Side::kReceive, "k", 2, 0));
  two_.a().Cancel(two_.now, cancelled, Cancelled());
  EXPECT_EQ(two_.a().view().TombstonesHeld(PeerId(kB)), 1u);
  RemoveB();
  EXPECT_EQ(two_.a().view().TombstonesHeld(PeerId(kB)), 0u);
}

TEST_F(EngineNodesTest, ItsDevicesAreUnknown) {
  const auto unknown = Fails(StatusCode::kNotFound, Reason::kDeviceUnknown);
  const TransferSpec send = SpecOf(Side::kSend, "k", 0, 2);
  EXPECT_TRUE(CheckAtA(send).ok());
  RemoveB();
  EXPECT_THAT(CheckAtA(send), unknown);
  EXPECT_THAT(CheckAtA(send), Says("no node has device 2; node-a has 0, 1; node-c has 4"));
  EXPECT_TRUE(CheckAtA(SpecOf(Side::kSend, "k", 0, 4)).ok());
  EXPECT_THAT(two_.a().view().Explain(two_.now, GlobalDeviceId(0), GlobalDeviceId(2), 1).status(),
              Fails(StatusCode::kInvalidArgument, Reason::kDeviceUnknown));
  EXPECT_THAT(two_.a().WarmCommunicator(two_.now, {GlobalDeviceId(0), GlobalDeviceId(2)}),
              Fails(StatusCode::kInvalidArgument, Reason::kDeviceUnknown));
}

// Of a batch whose beginning was posted before, and of a job that was checked when it was posted.
TEST_F(EngineNodesTest, WhatWasCheckedBeforeAndIsPostedAfterEndsAtOnce) {
  two_.LinkUp();
  std::vector<TransferSpec> batch = {SpecOf(Side::kSend, "k", 0, 2),
                                     SpecOf(Side::kReceive, "r", 2, 0)};
  RemoveB();
  for (uint64_t i = 0; i < 2; ++i) {
    two_.a().Post(two_.now, kSession, i, absl::MakeSpan(&batch[i], 1));
  }
  two_.Take(kA);
  for (uint64_t i = 0; i < 2; ++i) {
    EXPECT_THAT(two_.StatusOf(kA, MakeTransferId(kSession, i)), kLeft);
  }
  EXPECT_THAT(two_.daemons[kA].wanted, IsEmpty());
  EXPECT_EQ(two_.a().view().in_flight(), 0u);
}

TEST_F(EngineNodesTest, ALaunchThatIsUnderWayEndsWhenItIsAnswered) {
  two_.LinkUp(/*mapped=*/false);
  const TransferId to = two_.Post(SpecOf(Side::kReceive, "k", 2, 0));
  two_.Post(SpecOf(Side::kSend, "k", 2, 0));
  two_.Run();
  ASSERT_THAT(two_.daemons[kA].launches, SizeIs(1));
  RemoveB();
  EXPECT_FALSE(two_.IsOver(kA, to));
  ASSERT_THAT(two_.daemons[kA].aborts, SizeIs(1));
  // Its device may be another node's by then, and the node may have come again with others.
  EXPECT_EQ(two_.a().AddPeer("node-d", {GlobalDeviceId(2)}), PeerId(3));
  EXPECT_EQ(two_.a().AddPeer("node-b", {GlobalDeviceId(3)}), PeerId(kB));
  two_.a().OnPeerUp(two_.now, PeerId(3), Routes(false, true));
  const Launch launch = two_.daemons[kA].launches[0];
  two_.a().OnLaunchDone(two_.now, launch.transfer, launch.attempt, absl::AbortedError("aborted"));
  two_.Take(kA);
  EXPECT_THAT(two_.StatusOf(kA, to), kLeft);
  EXPECT_EQ(two_.a().view().in_flight(), 0u);
}

// What was measured of GPUs is apart from what was of host devices: the launch counts where it
// began.
TEST_F(EngineNodesTest, ADeviceThatIsOfAnotherKindWhenItsLaunchIsAnsweredEndsNothingElse) {
  two_.LinkUp(/*mapped=*/false);
  const TransferId to = two_.Post(SpecOf(Side::kReceive, "k", 2, 0));
  two_.Post(SpecOf(Side::kSend, "k", 2, 0));
  two_.Run();
  ASSERT_THAT(two_.daemons[kA].launches, SizeIs(1));
  const Launch launch = two_.daemons[kA].launches[0];
  RemoveB();
  ASSERT_EQ(two_.a().AddPeer("node-b", kDevicesOfB), PeerId(kB));
  two_.a().OnPeerUp(two_.now, PeerId(kB), Routes(false, true), {GlobalDeviceId(2)});
  two_.a().OnLaunchDone(two_.now, launch.transfer, launch.attempt, absl::AbortedError("aborted"));
  two_.Take(kA);
  EXPECT_THAT(two_.StatusOf(kA, to), kLeft);
  EXPECT_EQ(two_.a().view().in_flight(), 0u);
}

TEST_F(EngineNodesTest, WhoComesAgainIsAsNew) {
  two_.LinkUp();
  // Receives that were cancelled: who sends under their keys would be told.
  const TransferId cancelled = two_.Post(SpecOf(Side::kReceive, "before", 2, 0));
  two_.a().Cancel(two_.now, cancelled, Cancelled());
  EXPECT_EQ(two_.a().view().TombstonesHeld(PeerId(kB)), 1u);
  // Its devices' members, of whom the last one has gone.
  EXPECT_TRUE(two_.b().Join(two_.now, kSession, "job", GlobalDeviceId(2), "trainer").ok());
  EXPECT_TRUE(two_.b().Join(two_.now, SessionId(2), "job", GlobalDeviceId(3), "other").ok());
  two_.b().EndSession(two_.now, kSession, "killed");
  two_.Run();
  EXPECT_THAT(two_.a().view().members().places(), SizeIs(2));
  EXPECT_TRUE(two_.a().view().members().any_deserted());
  RemoveB();
  LoseAAtB();
  EXPECT_EQ(two_.a().view().TombstonesHeld(PeerId(kB)), 0u);
  EXPECT_THAT(two_.a().view().members().places(), IsEmpty());
  EXPECT_FALSE(two_.a().view().members().any_deserted());
  EXPECT_EQ(two_.a().AddPeer("node-b", kDevicesOfB), PeerId(kB));
  const TransferId from = two_.Post(SpecOf(Side::kSend, "before", 2, 0));
  const TransferId to = two_.Post(SpecOf(Side::kReceive, "before", 2, 0));
  two_.Take(kA);
  EXPECT_THAT(two_.daemons[kA].wanted, Contains(PeerId(kB)));
  EXPECT_FALSE(two_.IsOver(kA, to));
  two_.LinkUp();
  two_.Answer(kA);
  EXPECT_TRUE(two_.StatusOf(kA, to).ok());
  EXPECT_TRUE(two_.StatusOf(kB, from).ok());
  two_.ExpectNothingLeft();
}

TEST_F(EngineNodesTest, AFurtherPeerGetsTheNextId) {
  EXPECT_EQ(two_.a().AddPeer("node-d", {GlobalDeviceId(6), GlobalDeviceId(1 << 20)}), PeerId(3));
  EXPECT_EQ(two_.a().view().TombstonesHeld(PeerId(3)), 0u);
  two_.Post(SpecOf(Side::kSend, "k", 0, 6));
  std::vector<TransferSpec> far = {SpecOf(Side::kReceive, "far", 1 << 20, 1)};
  EXPECT_THAT(two_.a().Check(far), IsEmpty());
  const Outbox out = two_.a().TakeOutbox();
  EXPECT_THAT(out.wanted_peers, ::testing::ElementsAre(PeerId(3)));
  two_.a().OnPeerUp(two_.now, PeerId(3), Routes(true, true));
  EXPECT_THAT(two_.a().TakeOutbox().messages, SizeIs(1));
}

class EngineNodesGroupTest : public EngineGroups {};

TEST_F(EngineNodesGroupTest, CommunicatorsWithOneThatLeavesAreDropped) {
  const auto [send, receive] = Pair("under way");
  two_.Run();
  ASSERT_THAT(Groups(kA), SizeIs(1));
  const auto [waiting, waiting_there] = Pair("waits");
  two_.a().RemovePeer(two_.now, PeerId(kB), Removed());
  two_.Take(kA);
  ASSERT_THAT(Ends(kA), SizeIs(1));
  EXPECT_FALSE(Ends(kA)[0].status.ok());
  EXPECT_THAT(two_.StatusOf(kA, waiting), kLeft);
  EXPECT_FALSE(two_.IsOver(kA, send));
  // The device is another node's when the lane answers.
  two_.a().AddPeer("node-d", {GlobalDeviceId(2)});
  two_.a().OnGroupDone(two_.now, Groups(kA)[0].ticket, absl::AbortedError("aborted"));
  two_.Take(kA);
  EXPECT_THAT(two_.StatusOf(kA, send), kLeft);
  EXPECT_EQ(two_.a().view().in_flight(), 0u);
  EXPECT_EQ(two_.a().view().groups(), 0u);
  EXPECT_EQ(two_.a().view().waiting_pairs(), 0u);
}

TEST(DeviceOwnersTest, WhoHadADeviceLastIsKnownWhenItIsNobodys) {
  for (const uint64_t id : {uint64_t{7}, uint64_t{1} << 40}) {
    const GlobalDeviceId device(id);
    DeviceOwners owners({{device, PeerId(1)}});
    EXPECT_EQ(owners.Find(device), PeerId(1));
    owners.Drop(device);
    EXPECT_EQ(owners.Find(device), std::nullopt);
    EXPECT_EQ(owners[device], PeerId(1));
    owners.Set(device, PeerId(2));
    EXPECT_EQ(owners.Find(device), PeerId(2));
    EXPECT_EQ(owners[device], PeerId(2));
    EXPECT_EQ(owners.Find(GlobalDeviceId(8)), std::nullopt);
  }
}

}  // namespace
}  // namespace ferry
