// SPDX-License-Identifier: Apache-2.0
// A record's flags say in which tables it is, and leaving one table twice is leaving it once.
#include "transfer/rules/half_tables.h"

#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "transfer/half_book.h"

namespace ferry {
namespace {

constexpr SessionId kTablesOwner{3};
constexpr PeerId kTablesPeer{1};

class HalfTablesTest : public testing::Test {
 protected:
  static MatchKey Key() { return {"job", GlobalDeviceId(0), GlobalDeviceId(2), "key"}; }
  Posted& AddReceive(TransferSpec spec) {
    spec.side = Side::kReceive;
    spec.key = Key();
    halves_.Expect(kTablesOwner, 1);
    return halves_.Add(now_, MakeTransferId(kTablesOwner, 9), std::move(spec), kTablesPeer);
  }
  void Enter(Posted& half) {
    const Half own{half.spec.side, devices_.self, half.id};
    ASSERT_EQ(matcher_.Add(half.spec.key, own).outcome, TransferMatcher::Outcome::kWaiting);
    half.in_matcher = true;
  }
  Offered& AddOffer() {
    Offer offer;
    offer.transfer = MakeTransferId(SessionId(7), 1);
    offer.key = Key();
    offer.deadline = absl::Seconds(5);
    Offered& offered = *offers_.Add(now_, kTablesPeer, std::move(offer));
    const Half send{Side::kSend, kTablesPeer, offered.offer.transfer};
    EXPECT_EQ(matcher_.Add(offered.offer.key, send).outcome, TransferMatcher::Outcome::kWaiting);
    offers_.Wait(now_, offered);
    return offered;
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Seconds(100);
  DeviceMap devices_{.self = PeerId(0),
                     .owner = {{GlobalDeviceId(0), kTablesPeer}, {GlobalDeviceId(2), PeerId(0)}},
                     .node_names = {"node-a", "node-b"}};
  DeviceOwners owners_{devices_.owner};
  std::deque<Peer> peers_{2};
  Outbox out_;
  EngineContext context_{devices_, owners_, peers_, now_, out_};
  TransferMatcher matcher_;
  HalfBook halves_;
  OfferBook offers_{{.offers_per_peer = 10, .peer_kept_bytes = 1 << 20}, 2};
  LongWaits long_waits_{context_, halves_, offers_, {}};
  HalfTables tables_{context_, matcher_, offers_, long_waits_};
};

TEST_F(HalfTablesTest, AHalfIsTimedUntilItsTimerIsStoppedOrDue) {
  TransferSpec spec;
  spec.deadline = now_ + absl::Seconds(2);
  Posted& half = AddReceive(spec);
  tables_.SetTimer(half);
  EXPECT_TRUE(half.timed);
  EXPECT_EQ(tables_.first_due(), absl::ToUnixNanos(spec.deadline));
  tables_.StopTimer(half);
  tables_.StopTimer(half);
  EXPECT_FALSE(half.timed);
  EXPECT_EQ(tables_.first_due(), Deadlines::kNever);

  tables_.SetTimer(half);
  EXPECT_FALSE(tables_.TakeDue(absl::ToUnixNanos(spec.deadline) - 1).has_value());
  EXPECT_EQ(tables_.TakeDue(absl::ToUnixNanos(spec.deadline))->transfer, half.id);
}

TEST_F(HalfTablesTest, WhatHasNoDeadlineHasNoTimer) {
  Posted& half = AddReceive(TransferSpec());
  tables_.SetTimer(half);
  EXPECT_FALSE(half.timed);
  EXPECT_EQ(tables_.first_due(), Deadlines::kNever);
}

TEST_F(HalfTablesTest, WhoLeavesTheMatcherIsNotFoundThereAndIsToldOfNoTombstone) {
  Posted& half = AddReceive(TransferSpec());
  Enter(half);
  tables_.TellLater(half.id, absl::CancelledError("its send was cancelled"));
  tables_.LeaveMatcher(half);
  tables_.LeaveMatcher(half);
  EXPECT_FALSE(half.in_matcher);
  EXPECT_FALSE(matcher_.Find(half.spec.key).has_value());
  EXPECT_FALSE(tables_.TakeToTell(half.id).has_value());
}

TEST_F(HalfTablesTest, ATombstoneIsToldOnce) {
  Posted& half = AddReceive(TransferSpec());
  tables_.TellLater(half.id, absl::CancelledError("its send was cancelled"));
  EXPECT_EQ(tables_.TakeToTell(half.id), absl::CancelledError("its send was cancelled"));
  EXPECT_FALSE(tables_.TakeToTell(half.id).has_value());
}

TEST_F(HalfTablesTest, AWatchIsOrderedOnceAndTakenBackOnce) {
  TransferSpec spec;
  spec.defined = false;
  spec.defined_timeline = 4;
  spec.defined_value = 7;
  Posted& half = AddReceive(spec);
  tables_.WatchDefined(half);
  ASSERT_EQ(out_.watches.size(), 1U);
  EXPECT_EQ(out_.watches[0].transfer, half.id);
  EXPECT_EQ(out_.watches[0].device, GlobalDeviceId(2));
  EXPECT_EQ(out_.watches[0].timeline, 4U);
  EXPECT_EQ(out_.watches[0].value, 7U);
  tables_.StopWatching(half);
  tables_.StopWatching(half);
  EXPECT_FALSE(half.watched);
  EXPECT_EQ(out_.unwatch.size(), 1U);
}

TEST_F(HalfTablesTest, WithoutAValueTheClientSaysItselfThatTheDataIsDefined) {
  TransferSpec spec;
  spec.defined = false;
  Posted& half = AddReceive(spec);
  tables_.WatchDefined(half);
  EXPECT_TRUE(half.watched);
  EXPECT_TRUE(out_.watches.empty());
}

TEST_F(HalfTablesTest, AnErasedOfferIsInNoTable) {
  Offered& offered = AddOffer();
  const TransferId id = offered.offer.transfer;
  tables_.SetTimer(offered);
  EXPECT_TRUE(offered.timed);
  tables_.Erase(offered);
  EXPECT_EQ(offers_.Find(kTablesPeer, id), nullptr);
  EXPECT_EQ(offers_.waiting(), 0U);
  EXPECT_FALSE(matcher_.Find(Key()).has_value());
  EXPECT_EQ(tables_.first_due(), Deadlines::kNever);
}

}  // namespace
}  // namespace ferry
