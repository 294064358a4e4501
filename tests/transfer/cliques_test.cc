// SPDX-License-Identifier: Apache-2.0
// Cliques without an engine: one daemon's end of the clique of devices 0 and 2, of which node-a
// owns 0 and leads.
#include "transfer/clique/cliques.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr PeerId kLeading(0), kFollowing(1);
constexpr GlobalDeviceId kLowDevice(0), kHighDevice(2);
constexpr Clique kTwoDevices{kLowDevice, kHighDevice};

class CliquesTest : public testing::Test {
 protected:
  explicit CliquesTest(PeerId self = kLeading)
      : devices_{self, {{kLowDevice, kLeading}, {kHighDevice, kFollowing}}, {"node-a", "node-b"}} {
    options_.cutting = {.group_bytes = 10'000, .group_chunks = 8, .chunk_bytes = 4096};
    routes_.AddPeer();
    routes_.AddPeer();
    RouteTable table(kRoutes);
    table[static_cast<size_t>(Route::kNccl)].available = true;
    routes_.OnPeerUp(Other(), std::move(table), {});
    cliques_.OnPeerUp(Other());
  }
  PeerId Other() const { return devices_.self == kLeading ? kFollowing : kLeading; }

  // A send of ours to the other daemon.
  Load SendOf(uint64_t id, uint64_t bytes) const {
    Load load;
    load.half = TransferId(id);
    load.clique = kTwoDevices;
    load.name = {devices_.self == kFollowing, TransferId(id)};
    load.peer = Other();
    load.bytes = bytes;
    load.layout = &layout_;
    return load;
  }
  bool Carry(Load& load) {
    known_[load.half] = &load;
    return cliques_.Carry(load, 0, false);
  }
  // The leader opens the communicator that it wants for what it carries.
  void Open() {
    cliques_.Run();
    ASSERT_THAT(Take<CommunicatorOpen>(), SizeIs(1));
    cliques_.comms().OnOpened(kTwoDevices, 1);
  }
  // The orders, and the messages, of a kind; the others are dropped.
  template <typename Order>
  std::vector<Order> Take() {
    std::vector<Order> taken;
    for (GroupOrder& order : std::exchange(out_.groups, {})) {
      if (Order* const wanted = std::get_if<Order>(&order)) taken.push_back(std::move(*wanted));
    }
    return taken;
  }
  template <typename Message>
  std::vector<Message> Said() {
    std::vector<Message> said;
    for (auto& [peer, message] : std::exchange(out_.messages, {})) {
      if (Message* const wanted = std::get_if<Message>(&message)) said.push_back(*wanted);
    }
    return said;
  }
  template <typename Event>
  std::vector<uint64_t> Halves() {
    std::vector<uint64_t> halves;
    for (const CliqueEvent& event : cliques_.TakeEvents()) {
      if (const Event* wanted = std::get_if<Event>(&event)) halves.push_back(wanted->half.value());
    }
    return halves;
  }

  const DeviceMap devices_;
  const DeviceOwners owners_{devices_.owner};
  CliqueOptions options_;
  const absl::Duration group_time_ = absl::Milliseconds(2);
  absl::Time now_ = absl::UnixEpoch();
  Outbox out_;
  const Layout layout_;
  std::map<TransferId, Load*> known_;  // what the engine would let go into a group
  RouteChoice routes_{devices_, owners_, {Route::kNccl}, false, [this](const Clique& clique) {
                        return std::as_const(cliques_).comms().Find(clique);
                      }};
  Cliques cliques_{{devices_, owners_, routes_, options_, group_time_, now_, out_},
                   [this](PeerId, const Clique&, const PairName& name, bool receives) -> Load* {
                     const auto entry = known_.find(name.transfer);
                     return receives || entry == known_.end() ? nullptr : entry->second;
                   }};
};

TEST_F(CliquesTest, ALoadIsPinnedUntilItsLastGroupIsOver) {
  Load load = SendOf(7, 12'000);  // more than a group has
  EXPECT_TRUE(Carry(load));
  EXPECT_TRUE(load.handed);
  Open();
  uint64_t moved = 0;
  for (uint64_t number = 1; load.moved < load.bytes; ++number) {
    cliques_.Run();
    const std::vector<Group> said = Said<Group>();
    ASSERT_THAT(said, SizeIs(1));
    EXPECT_EQ(said[0].number, number);
    EXPECT_TRUE(load.pinned());
    EXPECT_THAT(Halves<LoadPinned>(), ElementsAre(7));
    ASSERT_TRUE(cliques_.OnGranted(kFollowing, {kTwoDevices, 1, number, {}}));
    const std::vector<GroupLaunch> launched = Take<GroupLaunch>();
    ASSERT_THAT(launched, SizeIs(1));
    moved += launched[0].chunks[0].bytes;
    EXPECT_EQ(cliques_.OnGroupDone(launched[0].ticket, absl::OkStatus()), kTwoDevices);
    EXPECT_THAT(Halves<LoadSettled>(), ElementsAre(7));
    EXPECT_EQ(load.moved, moved);
    ASSERT_LT(number, 10u);
  }
  EXPECT_EQ(load.cut, load.bytes);
  EXPECT_FALSE(load.handed);
  EXPECT_FALSE(load.pinned());
  EXPECT_EQ(cliques_.groups(), 0u);
  cliques_.Forget(load);
}

TEST_F(CliquesTest, WhatTheFollowerRefusesIsNotLaunched) {
  Load kept = SendOf(7, 100), refused = SendOf(8, 100);
  Carry(kept);
  Carry(refused);
  Open();
  cliques_.Run();
  const std::vector<Group> said = Said<Group>();
  ASSERT_THAT(said, SizeIs(1));
  ASSERT_THAT(said[0].chunks, SizeIs(2));
  const uint32_t place = said[0].chunks[0].pair.transfer == refused.half ? 0 : 1;
  EXPECT_FALSE(cliques_.OnGranted(kFollowing, {kTwoDevices, 1, 1, {2}}));  // there is no such chunk
  ASSERT_TRUE(cliques_.OnGranted(kFollowing, {kTwoDevices, 1, 1, {place}}));
  const std::vector<GroupLaunch> launched = Take<GroupLaunch>();
  ASSERT_THAT(launched, SizeIs(1));
  ASSERT_THAT(launched[0].chunks, SizeIs(1));
  EXPECT_EQ(launched[0].chunks[0].transfer, kept.half);
  EXPECT_TRUE(kept.pinned());
  EXPECT_FALSE(refused.pinned());
  EXPECT_EQ(refused.moved, 0u);
  EXPECT_THAT(Halves<LoadSettled>(), ElementsAre(8));
}

TEST_F(CliquesTest, ADroppedLoadIsTakenBackOnce) {
  Load load = SendOf(7, 100);
  Carry(load);
  EXPECT_EQ(cliques_.waiting(), 1u);
  EXPECT_TRUE(cliques_.Drop(load, absl::CancelledError("first")));
  EXPECT_EQ(cliques_.waiting(), 0u);
  EXPECT_FALSE(cliques_.Drop(load, absl::CancelledError("second")));
  EXPECT_THAT(load.why.message(), HasSubstr("first"));
  cliques_.Forget(load);
}

TEST_F(CliquesTest, AGroupThatFailsEndsItsAttemptAtBothEnds) {
  Load load = SendOf(7, 100);
  Carry(load);
  Open();
  cliques_.Run();
  ASSERT_TRUE(cliques_.OnGranted(kFollowing, {kTwoDevices, 1, 1, {}}));
  const std::vector<GroupLaunch> launched = Take<GroupLaunch>();
  ASSERT_THAT(launched, SizeIs(1));
  Said<Group>();
  cliques_.OnGroupDone(launched[0].ticket, absl::InternalError("the lane failed"));
  const std::vector<AttemptOver> over = Said<AttemptOver>();
  ASSERT_THAT(over, SizeIs(1));
  EXPECT_EQ(over[0].attempt, 1u);
  EXPECT_THAT(over[0].status.message(), HasSubstr("the lane failed"));
  ASSERT_THAT(Take<CommunicatorEnd>(), SizeIs(1));
  EXPECT_THAT(Halves<LoadSettled>(), ElementsAre(7));
  EXPECT_TRUE(load.why.ok());  // a send: the destination tells how the transfer ends
  EXPECT_EQ(load.moved, 0u);
}

TEST_F(CliquesTest, AnOpeningThatTakesTooLongIsUnavailable) {
  Load load = SendOf(7, 100);
  Carry(load);
  cliques_.Run();
  EXPECT_EQ(cliques_.NextTime(), now_ + options_.open_deadline);
  EXPECT_FALSE(cliques_.attempt_ends().OnTime());
  now_ += options_.open_deadline;
  EXPECT_TRUE(cliques_.attempt_ends().OnTime());
  EXPECT_FALSE(cliques_.attempt_ends().OnTime());
  const std::vector<CliqueEvent> events = cliques_.TakeEvents();
  ASSERT_THAT(events, SizeIs(1));
  const auto* const unavailable = std::get_if<CliqueUnavailable>(&events[0]);
  ASSERT_NE(unavailable, nullptr);
  EXPECT_EQ(ReasonOf(unavailable->why), Reason::kRouteUnavailable);
  EXPECT_THAT(unavailable->why.message(), HasSubstr("not open within"));
}

class CliquesFollowerTest : public CliquesTest {
 protected:
  CliquesFollowerTest() : CliquesTest(kFollowing) {
    EXPECT_TRUE(cliques_.comms().OnOpenComm(kLeading, {kTwoDevices, 1, "id"}));
    out_ = Outbox();
  }
};

TEST_F(CliquesFollowerTest, RefusesWhatItDoesNotKnowAndLaunchesTheRest) {
  Load load = SendOf(7, 100);
  known_[load.half] = &load;
  Group group{kTwoDevices, 1, 1, {}};
  for (const uint64_t id : {6, 7}) group.chunks.push_back({{true, TransferId(id)}, 0, 100});
  ASSERT_TRUE(cliques_.OnGroup(kLeading, group));
  EXPECT_FALSE(cliques_.OnGroup(kLeading, group));  // one that asks for its lane is enough
  EXPECT_TRUE(load.pinned());
  cliques_.Run();
  const std::vector<Granted> granted = Said<Granted>();
  ASSERT_THAT(granted, SizeIs(1));
  EXPECT_THAT(granted[0].refused, ElementsAre(0));
  const std::vector<GroupLaunch> launched = Take<GroupLaunch>();
  ASSERT_THAT(launched, SizeIs(1));
  ASSERT_THAT(launched[0].chunks, SizeIs(1));
  EXPECT_EQ(launched[0].chunks[0].transfer, load.half);
}

TEST_F(CliquesFollowerTest, AGroupThatMakesNoSenseHasNoEffect) {
  const Chunk chunk{{true, TransferId(7)}, 0, 100};
  EXPECT_FALSE(cliques_.OnGroup(kLeading, {kTwoDevices, 1, 1, {}}));  // carries nothing
  EXPECT_FALSE(
      cliques_.OnGroup(kLeading, {kTwoDevices, 2, 1, {chunk}}));  // on no open communicator
  EXPECT_FALSE(cliques_.OnGroup(kFollowing, {kTwoDevices, 1, 1, {chunk}}));  // not from the leader
  EXPECT_FALSE(cliques_.OnGroup(kLeading, {{kHighDevice, kLowDevice}, 1, 1, {chunk}}));
  Chunk firing = chunk;
  firing.pair.slot = 3;
  EXPECT_FALSE(cliques_.OnGroup(kLeading, {kTwoDevices, 1, 1, {chunk, firing}}));  // of both kinds
  EXPECT_FALSE(cliques_.OnGroup(
      kLeading, {kTwoDevices, 1, 1, std::vector<Chunk>(kMaxGroupChunks + 1, chunk)}));
  EXPECT_EQ(cliques_.groups(), 0u);
  EXPECT_THAT(out_.messages, IsEmpty());
  EXPECT_THAT(cliques_.TakeEvents(), IsEmpty());
}

TEST_F(CliquesFollowerTest, ALostLinkUnpinsWhatWasNotLaunched) {
  Load load = SendOf(7, 100);
  known_[load.half] = &load;
  ASSERT_TRUE(cliques_.OnGroup(kLeading, {kTwoDevices, 1, 1, {{{true, TransferId(7)}, 0, 100}}}));
  EXPECT_TRUE(load.pinned());
  cliques_.OnPeerLost(kLeading, absl::UnavailableError("gone"));
  EXPECT_FALSE(load.pinned());
  EXPECT_EQ(cliques_.groups(), 0u);
  ASSERT_THAT(Take<CommunicatorEnd>(), SizeIs(1));
}

}  // namespace
}  // namespace ferry
