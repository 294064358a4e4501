// SPDX-License-Identifier: Apache-2.0
// Members of a domain: what waits for a device that the last of them has left ends at once.
#include "tests/transfer/two_daemons.h"
#include "transfer/members.h"

namespace ferry {
namespace {

using ::testing::HasSubstr;

constexpr SessionId kTrainer{7};
constexpr SessionId kSecond{8};
constexpr absl::Duration kSweep = absl::Seconds(1);

class EngineMembersTest : public ::testing::Test {
 protected:
  // A session of node-a is a member on device 0, of node-b on device 2.
  void Join(int node, SessionId session, const std::string& name = "trainer-0",
            const std::string& domain = "job") {
    const absl::Status joined = two_.engine(node).Join(
        two_.now, session, domain, GlobalDeviceId(static_cast<uint64_t>(2 * node)), name);
    EXPECT_TRUE(joined.ok()) << joined;
    two_.Run();
  }
  // The session's process dies; within a second who waits for it is told.
  void Die(int node, SessionId session) {
    two_.engine(node).EndSession(two_.now, session, "its process died");
    two_.Run();
    two_.Advance(kSweep);
  }
  void ExpectGone(int node, TransferId id, const std::string& text) {
    ASSERT_TRUE(two_.IsOver(node, id));
    const absl::Status status = two_.StatusOf(node, id);
    EXPECT_THAT(status, Fails(absl::StatusCode::kAborted, Reason::kPeerClientGone));
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
  uint32_t CountAt(int node, uint64_t device) {
    const auto& places = two_.engine(node).view().members().places();
    const auto place = places.find({GlobalDeviceId(device), "job"});
    return place == places.end() ? 0 : place->second.count;
  }

  TwoDaemons two_;
};

TEST_F(EngineMembersTest, AReceiveEndsWhenTheLastMemberOfItsSourceIsGone) {
  two_.LinkUp();
  const TransferId before = two_.Receive("posted before anybody joined");
  Join(kA, kTrainer);
  const TransferId receive = two_.Receive("step 1");
  const TransferId other = two_.Post(SpecOf(Side::kReceive, "of another device", 1, 2));
  two_.Run();
  Die(kA, kTrainer);
  for (const TransferId id : {before, receive}) {
    ExpectGone(kB, id, "nobody is left to post the send of key");
    ExpectGone(kB, id, "'trainer-0', is gone");
  }
  EXPECT_FALSE(two_.IsOver(kB, other));
  two_.b().Cancel(two_.now, other, Cancelled());
  two_.Run();
  two_.ExpectNothingLeft();
}

TEST_F(EngineMembersTest, ASendEndsWhenTheLastMemberOfItsDestinationIsGone) {
  two_.LinkUp();
  Join(kB, kTrainer, "engine-3");
  const TransferId send = two_.Send("step 1");
  TransferSpec undefined = SpecOf(Side::kSend, "undefined", 0, 2);
  undefined.defined = false;
  const TransferId later = two_.Post(undefined);
  two_.Run();
  Die(kB, kTrainer);
  for (const TransferId id : {send, later}) {
    ExpectGone(kA, id, "nobody is left to post the receive of key");
    ExpectGone(kA, id, "'engine-3', is gone");
  }
  two_.ExpectNothingLeft();
}

TEST_F(EngineMembersTest, WithinOneDaemon) {
  Join(kA, kTrainer);
  const TransferId receive = two_.Post(SpecOf(Side::kReceive, "k", 0, 1));
  const TransferId send = two_.Post(SpecOf(Side::kSend, "l", 1, 0));
  Die(kA, kTrainer);
  ExpectGone(kA, receive, "the last member");
  ExpectGone(kA, send, "the last member");
  two_.ExpectNothingLeft();
}

TEST_F(EngineMembersTest, NobodyEndsWhileAMemberIsLeft) {
  two_.LinkUp();
  Join(kA, kTrainer);
  Join(kA, kSecond, "trainer-1");
  EXPECT_EQ(CountAt(kB, 0), 2u);
  const TransferId receive = two_.Receive();
  two_.Run();
  Die(kA, kTrainer);
  EXPECT_EQ(CountAt(kB, 0), 1u);
  EXPECT_FALSE(two_.IsOver(kB, receive));
  Die(kA, kSecond);
  ExpectGone(kB, receive, "'trainer-1', is gone");
}

TEST_F(EngineMembersTest, WhereNobodyHasJoinedNothingIsKnown) {
  two_.LinkUp();
  Join(kA, kTrainer, "trainer-0", "another job");
  const TransferId receive = two_.Receive();
  two_.Run();
  Die(kA, kTrainer);
  EXPECT_FALSE(two_.IsOver(kB, receive));
}

TEST_F(EngineMembersTest, WhatIsPostedLaterEndsAtOnceUntilSomebodyJoinsAgain) {
  two_.LinkUp();
  Join(kA, kTrainer);
  Die(kA, kTrainer);
  const TransferId receive = two_.Receive("late");
  two_.Run();
  ExpectGone(kB, receive, "is gone since 1 s; post again when it is back");
  Join(kA, kSecond);
  const TransferId again = two_.Receive("late");
  const TransferId sent = two_.Send("late");
  two_.Run();
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kB, again).ok());
  EXPECT_TRUE(two_.StatusOf(kA, sent).ok());
}

TEST_F(EngineMembersTest, WhatHasItsPartnerGoesOn) {
  two_.LinkUp();
  Join(kA, kTrainer);
  const TransferId send = two_.Send("waits");  // of a session that has not joined
  two_.Run();
  Die(kA, kTrainer);
  const TransferId receive = two_.Receive("waits");
  two_.Run();
  two_.Answer(kB);
  EXPECT_TRUE(two_.StatusOf(kB, receive).ok());
  EXPECT_TRUE(two_.StatusOf(kA, send).ok());
}

TEST_F(EngineMembersTest, ADesertedPlaceIsForgottenInTime) {
  two_.LinkUp();
  Join(kA, kTrainer);
  Die(kA, kTrainer);
  two_.Advance(Members::kMemory);
  EXPECT_TRUE(two_.a().view().members().places().empty());
  EXPECT_TRUE(two_.b().view().members().places().empty());
  const TransferId receive = two_.Receive();
  two_.Run();
  two_.Advance(kSweep);
  EXPECT_FALSE(two_.IsOver(kB, receive));
}

TEST_F(EngineMembersTest, WhoDiesDuringAPartitionIsToldOfWhenItEnds) {
  two_.LinkUp();
  Join(kA, kTrainer);
  two_.LinkLost();
  const TransferId receive = two_.Receive();
  two_.Run();
  Die(kA, kTrainer);
  EXPECT_FALSE(two_.IsOver(kB, receive));
  two_.LinkUp();
  two_.Advance(kSweep);
  ExpectGone(kB, receive, "'trainer-0', is gone");
}

TEST_F(EngineMembersTest, TheMembersOfANewLifeHaveTimeToJoinAgain) {
  two_.LinkUp();
  Join(kB, kTrainer);  // receives there; node-b is what restarts
  Join(kB, kSecond, "engine-4", "second job");
  two_.LinkLost();
  DeviceMap map;
  map.self = PeerId(kB);
  for (uint64_t device = 0; device < 5; ++device) {
    map.owner[GlobalDeviceId(device)] = PeerId(device / 2);
  }
  map.node_names = {"node-a", "node-b", "node-c"};
  two_.daemons[kB].engine = std::make_unique<TransferEngine>(map, TransferEngine::Options());
  two_.LinkUp();
  const TransferId first = two_.Send("k");
  TransferSpec spec = SpecOf(Side::kSend, "k", 0, 2);
  spec.key.domain = "second job";
  const TransferId second = two_.Post(spec);
  two_.Run();
  two_.Advance(Members::kRejoin / 2);
  Join(kB, kTrainer);  // re-attached
  EXPECT_FALSE(two_.IsOver(kA, second));
  two_.Advance(Members::kRejoin);
  two_.Advance(kSweep);
  EXPECT_FALSE(two_.IsOver(kA, first));
  ExpectGone(kA, second, "has not joined again since the daemon came back");
}

// Or who joins again and again would have a daemon talk to all others all the time.
TEST_F(EngineMembersTest, ANewNameIsNoNewsToPeers) {
  two_.LinkUp();
  Join(kA, kTrainer);
  ASSERT_TRUE(two_.a().Join(two_.now, kTrainer, "job", GlobalDeviceId(0), "renamed").ok());
  EXPECT_TRUE(two_.a().TakeOutbox().messages.empty());
  EXPECT_EQ(two_.a().view().members().places().begin()->second.members[0].name, "renamed");
}

TEST_F(EngineMembersTest, APeerSpeaksOfItsOwnDevicesOnly) {
  two_.LinkUp();
  two_.b().OnMessage(two_.now, PeerId(kA), MembersTold{GlobalDeviceId(2), "job", 0, "liar"});
  two_.b().OnMessage(two_.now, PeerId(kA), MembersTold{GlobalDeviceId(99), "job", 0, "liar"});
  two_.b().OnMessage(two_.now, PeerId(kA),
                     MembersTold{GlobalDeviceId(0), "job", 0, std::string(65, 'x')});
  EXPECT_EQ(two_.b().view().ignored_messages(), 3u);
  EXPECT_TRUE(two_.b().view().members().places().empty());
}

TEST_F(EngineMembersTest, ManyThatWaitEndAFewAtATime) {
  TransferEngine::Options options;
  options.ends_at_once = 16;
  TwoDaemons two(options);
  two.LinkUp();
  ASSERT_TRUE(two.a().Join(two.now, kTrainer, "job", GlobalDeviceId(0), "t").ok());
  two.Run();
  for (int i = 0; i < 100; ++i) two.Receive(absl::StrCat(i));
  two.Run();
  two.a().EndSession(two.now, kTrainer, "died");
  two.Run();
  size_t before = 100;
  while (two.b().NextDeadline() <= two.now) {
    two.b().OnTime(two.now);
    ASSERT_LE(before - two.b().view().in_flight(), 16u);
    before = two.b().view().in_flight();
  }
  EXPECT_EQ(two.b().view().in_flight(), 0u);
}

TEST(MembersTest, ASessionHasABound) {
  Members members(PeerId(0));
  for (size_t i = 0; i < Members::kMostOfSession; ++i) {
    ASSERT_TRUE(members.Join(kTrainer, {GlobalDeviceId(i), "d"}, "m").ok());
  }
  EXPECT_THAT(members.Join(kTrainer, {GlobalDeviceId(1000), "d"}, "m").status(),
              Fails(absl::StatusCode::kResourceExhausted, Reason::kQueueFull));
  EXPECT_TRUE(members.Join(kTrainer, {GlobalDeviceId(3), "d"}, "renamed").ok());
  EXPECT_EQ(members.places().at({GlobalDeviceId(3), "d"}).members[0].name, "renamed");
  EXPECT_EQ(members.places().at({GlobalDeviceId(3), "d"}).count, 1u);
}

// Who joins and leaves in a loop makes the daemon keep no more than its bound, and only its own
// oldest are forgotten.
TEST(MembersTest, DesertedPlacesHaveABound) {
  Members members(PeerId(0));
  const absl::Time now = absl::UnixEpoch();
  ASSERT_TRUE(members.OnTold(now, PeerId(1), {GlobalDeviceId(5), "d"}, 0, "peer's"));
  for (size_t i = 0; i <= Members::kMostDeserted; ++i) {
    ASSERT_TRUE(members.Join(SessionId(i), {GlobalDeviceId(1), absl::StrCat(i)}, "m").ok());
    members.Leave(now + absl::Nanoseconds(static_cast<int64_t>(i)), SessionId(i));
  }
  EXPECT_EQ(members.places().size(), Members::kMostDeserted + 1);
  EXPECT_EQ(members.FindDeserted("0", GlobalDeviceId(1)), nullptr);
  EXPECT_NE(members.FindDeserted("1", GlobalDeviceId(1)), nullptr);
  EXPECT_NE(members.FindDeserted("d", GlobalDeviceId(5)), nullptr);
  members.OnTime(now + 2 * Members::kMemory);
  EXPECT_TRUE(members.places().empty());
  EXPECT_FALSE(members.any_deserted());
}

// The places of a peer's former life are deserted while the oldest deserted ones are forgotten.
TEST(MembersTest, AsManyAsThereCanBeAreDesertedAtOnce) {
  Members members(PeerId(0));
  const absl::Time now = absl::UnixEpoch();
  const auto told = [&](size_t number, uint32_t count) {
    ASSERT_TRUE(members.OnTold(now, PeerId(1), {GlobalDeviceId(number), "d"}, count, ""));
  };
  // By turns among those that have members, so that what is forgotten lies beside what is deserted.
  for (size_t i = 0; i < Members::kMostDeserted; ++i) told(2 * i, 0);
  for (size_t i = 0; i < Members::kMostOfPeer; ++i) told(2 * i + 1, 1);
  members.OnPeerLost(PeerId(1));
  members.OnPeerUp(now, PeerId(1));
  EXPECT_TRUE(members.OnTime(now + Members::kRejoin));
  EXPECT_EQ(members.places().size(), Members::kMostDeserted);
  for (size_t i = 0; i < Members::kMostOfPeer; ++i) {
    ASSERT_NE(members.FindDeserted("d", GlobalDeviceId(2 * i + 1)), nullptr) << i;
  }
}

}  // namespace
}  // namespace ferry
