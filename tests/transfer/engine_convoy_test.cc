// SPDX-License-Identifier: Apache-2.0
// Convoys: what is alike in a batch goes as one, and everything that happens to one of them alone
// finds it alone.
#include <numeric>
#include <string>

#include "engine_convoys.h"
#include "transfer/convoy.h"

namespace ferry {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(EngineConvoyTest, ABatchOfBothEndsIsOneLaunchAndOneEnding) {
  for (const Side first : {Side::kSend, Side::kReceive}) {
    const Side second = first == Side::kSend ? Side::kReceive : Side::kSend;
    two_.PostBatch(Batch(first));
    two_.Run();
    two_.PostBatch(Batch(second));
    two_.Run();
    ASSERT_EQ(Launches(), 1u);
    const Launch& launch = two_.daemons[kB].launches[0];
    EXPECT_EQ(launch.bytes, kCount * 4096);
    EXPECT_EQ(launch.layout.block(3), (Range{ArenaId(20), 3 * 8192, 4096}));
    EXPECT_EQ(launch.remote_layout.block(19), (Range{ArenaId(10), 19 * 8192, 4096}));
    two_.Answer(kB);
    for (const int node : {kA, kB}) {
      ASSERT_THAT(two_.daemons[node].ended, SizeIs(1));
      const Ended& ended = two_.daemons[node].ended[0];
      EXPECT_EQ(ended.count, kCount);
      EXPECT_EQ(ended.bytes, 4096u);
      EXPECT_EQ(ended.over_value, 1u);
      EXPECT_TRUE(ended.status.ok());
      two_.daemons[node].ended.clear();
    }
    two_.daemons[kB].launches.clear();
    two_.ExpectNothingLeft();
  }
}

TEST_F(EngineConvoyTest, WithinADaemonToo) {
  for (const Side side : {Side::kReceive, Side::kSend}) {
    std::vector<TransferSpec> batch = Batch(side);
    for (TransferSpec& spec : batch) spec.key.destination = GlobalDeviceId(1);
    two_.PostBatch(batch);
  }
  two_.Run();
  ASSERT_EQ(Launches(kA), 1u);
  EXPECT_EQ(two_.daemons[kA].launches[0].route, Route::kLocal);
  two_.Answer(kA);
  EXPECT_EQ(Over(kA), std::make_pair(2 * kCount, 2 * kCount));
}

TEST_F(EngineConvoyTest, WhatIsLookedAtAreItsTransfers) {
  const TransferId first = two_.PostBatch(Batch(Side::kSend));
  two_.Run();
  EXPECT_EQ(two_.a().view().in_flight(), kCount);
  EXPECT_EQ(two_.a().view().in_flight(kSession), kCount);
  EXPECT_EQ(two_.b().view().waiting_offers(), kCount);
  EXPECT_EQ(two_.b().view().OffersHeld()[PeerId(kA)], kCount);
  const auto rows = two_.a().view().List(7);
  ASSERT_THAT(rows, SizeIs(7));
  EXPECT_EQ(rows[6].key.key, "k6");
  EXPECT_EQ(rows[6].transfer, Member(first, 6));
  EXPECT_EQ(rows[6].bytes, 4096u);
  const auto row = two_.a().view().Find(Member(first, 19));
  ASSERT_TRUE(row.has_value());
  EXPECT_EQ(row->key.key, "k19");
  EXPECT_FALSE(two_.a().view().Find(Member(first, 20)).has_value());
  EXPECT_TRUE(two_.a().view().IsInFlight(Member(first, 19)));
  const auto offers = two_.b().view().ListOffers(3);
  ASSERT_THAT(offers, SizeIs(3));
  EXPECT_EQ(offers[2].key.key, "k2");
  EXPECT_EQ(offers[2].transfer, Member(first, 2));
  size_t visited = 0;
  two_.a().view().Visit([&](const TransferBrief& brief) {
    EXPECT_EQ(brief.transfer, Member(first, visited++));
    EXPECT_EQ(brief.bytes, 4096u);
  });
  EXPECT_EQ(visited, kCount);
}

TEST_F(EngineConvoyTest, OneHalfOfItsKeysTakesItApart) {
  two_.PostBatch(Batch(Side::kSend));
  two_.Run();
  two_.Receive("k7");
  two_.Run();
  ASSERT_EQ(Launches(), 1u);
  EXPECT_EQ(two_.daemons[kB].launches[0].remote_layout.block(0),
            (Range{ArenaId(10), 7 * 8192, 4096}));
  two_.Answer(kB);
  EXPECT_EQ(Over(kA), std::make_pair(size_t{1}, size_t{1}));
  EXPECT_EQ(two_.a().view().in_flight(), kCount - 1);
  EXPECT_EQ(two_.b().view().waiting_offers(), kCount - 1);
}

TEST_F(EngineConvoyTest, BatchesThatAreCutDifferentlyMeet) {
  for (const size_t cut : {size_t{1}, size_t{9}, size_t{12}}) {
    for (const bool sends_first : {true, false}) {
      const size_t sends = sends_first ? kCount : cut;
      const size_t receives = sends_first ? cut : kCount;
      const auto post = [&](Side side, size_t count) {
        two_.PostBatch(Batch(side, count));
        two_.Run();
        if (count < kCount) two_.PostBatch(Batch(side, kCount - count, count));
        two_.Run();
      };
      post(Side::kSend, sends);
      post(Side::kReceive, receives);
      AnswerAll();
      for (const int node : {kA, kB}) {
        EXPECT_EQ(Over(node), std::make_pair(kCount, kCount)) << "cut at " << cut;
        two_.daemons[node].ended.clear();
      }
      two_.daemons[kB].launches.clear();
      two_.ExpectNothingLeft();
      two_.Advance(absl::Seconds(2));  // convoys are tried again
    }
  }
}

TEST_F(EngineConvoyTest, AnotherOrderOfTheSameKeysMeetsToo) {
  std::vector<TransferSpec> receives = Batch(Side::kReceive);
  std::swap(receives[2].key.key, receives[11].key.key);
  two_.PostBatch(Batch(Side::kSend));
  two_.PostBatch(receives);
  two_.Run();
  EXPECT_EQ(Launches(), kCount);
  for (const Launch& launch : two_.daemons[kB].launches) {
    const uint64_t from = launch.remote_layout.block(0).offset / 8192;
    const uint64_t to = launch.layout.block(0).offset / 8192;
    EXPECT_EQ(to, from == 2 ? 11 : from == 11 ? 2 : from);
  }
  AnswerAll();
  EXPECT_EQ(Over(kA), std::make_pair(kCount, kCount));
}

TEST_F(EngineConvoyTest, AKeyOfItIsInUse) {
  two_.PostBatch(Batch(Side::kSend));
  const TransferSpec again = SpecOf(Side::kSend, "k7", 0, 2);
  const auto errors = two_.a().Check({&again, 1});
  ASSERT_THAT(errors, SizeIs(1));
  EXPECT_THAT(errors[0].status, Fails(StatusCode::kAlreadyExists, Reason::kKeyInUse));
  const TransferSpec other = SpecOf(Side::kSend, "k20", 0, 2);
  EXPECT_THAT(two_.a().Check({&other, 1}), IsEmpty());
}

TEST_F(EngineConvoyTest, OneThatIsCancelledEndsAloneAtBothEnds) {
  for (const Side side : {Side::kSend, Side::kReceive}) {
    const int node = side == Side::kSend ? kA : kB;
    const TransferId first = two_.PostBatch(Batch(side));
    two_.Run();
    EXPECT_TRUE(two_.engine(node).Cancel(two_.now, Member(first, 4), Cancelled()));
    two_.Run();
    EXPECT_THAT(two_.StatusOf(node, Member(first, 4)),
                Fails(StatusCode::kCancelled, Reason::kCancelled));
    EXPECT_EQ(Over(node), std::make_pair(size_t{1}, size_t{0}));
    two_.PostBatch(Batch(side == Side::kSend ? Side::kReceive : Side::kSend));
    two_.Run();
    AnswerAll();
    for (const int at : {kA, kB}) {
      EXPECT_EQ(Over(at), std::make_pair(kCount, kCount - 1));
      two_.daemons[at].ended.clear();
    }
    two_.daemons[kB].launches.clear();
    two_.ExpectNothingLeft();
  }
}

TEST_F(EngineConvoyTest, ACancelThatCrossesTheMatchIsTooLate) {
  const TransferId first = two_.PostBatch(Batch(Side::kSend));
  two_.Run();
  two_.a().Cancel(two_.now, Member(first, 4), Cancelled());  // on its way
  two_.PostBatch(Batch(Side::kReceive));
  two_.Take(kB);
  ASSERT_EQ(Launches(), 1u);
  two_.Run();
  two_.Answer(kB);
  EXPECT_EQ(Over(kA), std::make_pair(kCount, kCount));
  EXPECT_EQ(Over(kB), std::make_pair(kCount, kCount));
  two_.ExpectNothingLeft();
}

TEST_F(EngineConvoyTest, ADeadlineEndsEachWithWhatItWaitedFor) {
  two_.PostBatch(Batch(Side::kSend));
  two_.Run();
  two_.Advance(absl::Seconds(61));
  ASSERT_THAT(two_.daemons[kA].ended, SizeIs(kCount));
  EXPECT_THAT(two_.daemons[kA].ended[3].status,
              Fails(StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer));
  EXPECT_THAT(two_.daemons[kA].ended[3].status, Says("the receive of key 'k3' at node-b"));
  two_.ExpectNothingLeft();
}

TEST_F(EngineConvoyTest, ASessionThatEndsLeavesWordForEach) {
  two_.PostBatch(Batch(Side::kSend));
  two_.Run();
  two_.a().EndSession(two_.now, kSession, "killed");
  two_.Run();
  EXPECT_EQ(Over(kA), std::make_pair(kCount, size_t{0}));
  two_.PostBatch(Batch(Side::kReceive), SessionId(2));
  two_.Run();
  EXPECT_EQ(Over(kB), std::make_pair(kCount, size_t{0}));
  for (const Ended& ended : two_.daemons[kB].ended) {
    EXPECT_THAT(ended.status, Fails(StatusCode::kAborted, Reason::kPeerClientGone));
  }
}

TEST_F(EngineConvoyTest, WhoWaitsForASecondIsFoundByItsKey) {
  two_.PostBatch(Batch(Side::kSend));
  two_.PostBatch(Batch(Side::kReceive, kCount, 100));
  two_.Run();
  two_.Advance(absl::Seconds(2));
  EXPECT_EQ(two_.a().view().in_flight(), kCount);
  EXPECT_EQ(two_.b().view().in_flight(), kCount);
  const TransferSpec wrong = SpecOf(Side::kReceive, "k3x", 0, 2);
  TransferSpec asks = wrong;
  asks.deadline = two_.now + absl::Seconds(1);
  const TransferId id = two_.Post(asks);
  two_.Advance(absl::Seconds(2));
  EXPECT_THAT(two_.StatusOf(kB, id), Says("a send of key 'k3' waits at node-a"));
}

TEST_F(EngineConvoyTest, MismatchedBytesEndAll) {
  std::vector<TransferSpec> receives = Batch(Side::kReceive);
  for (TransferSpec& spec : receives) {
    spec.bytes = 2048;
    spec.layout = Layout({Range{ArenaId(20), spec.layout.extents()[0].offset, 2048}});
  }
  two_.PostBatch(Batch(Side::kSend));
  two_.PostBatch(receives);
  two_.Run();
  EXPECT_EQ(Over(kA), std::make_pair(kCount, size_t{0}));
  EXPECT_EQ(Over(kB), std::make_pair(kCount, size_t{0}));
  EXPECT_THAT(two_.daemons[kB].ended[0].status,
              Fails(StatusCode::kFailedPrecondition, Reason::kTransferMismatch));
  EXPECT_THAT(two_.daemons[kB].ended[0].status, Says("20 keys, 'k0' to 'k19', from device 0"));
}

TEST_F(EngineConvoyTest, ARefusedLaunchTakesTheNextRouteAsOne) {
  two_.PostBatch(Batch(Side::kSend));
  two_.PostBatch(Batch(Side::kReceive));
  two_.Run();
  ASSERT_EQ(Launches(), 1u);
  EXPECT_EQ(two_.daemons[kB].launches[0].route, Route::kMapped);
  two_.Answer(kB, RouteRefused());
  ASSERT_EQ(Launches(), 2u);
  EXPECT_EQ(two_.daemons[kB].launches[1].route, Route::kUcx);
  ASSERT_EQ(Launches(kA), 1u);
  EXPECT_EQ(two_.daemons[kA].launches[0].bytes, kCount * 4096);
  two_.Answer(kA);
  two_.Answer(kB);
  EXPECT_EQ(Over(kA), std::make_pair(kCount, kCount));
  EXPECT_EQ(Over(kB), std::make_pair(kCount, kCount));
  two_.ExpectNothingLeft();
}

TEST_F(EngineConvoyTest, ALostLinkEndsAll) {
  two_.PostBatch(Batch(Side::kSend));
  two_.Run();
  two_.LinkLost();
  EXPECT_EQ(Over(kA), std::make_pair(kCount, size_t{0}));
  EXPECT_THAT(two_.daemons[kA].ended[0].status,
              Fails(StatusCode::kUnavailable, Reason::kPeerUnreachable));
  two_.ExpectNothingLeft();
}

TEST_F(EngineConvoyTest, OnlyWhatIsAlikeGoesAsOne) {
  const auto length = [](auto change) {
    std::vector<TransferSpec> batch = Batch(Side::kSend);
    change(batch);
    return ConvoyLength(batch);
  };
  EXPECT_EQ(length([](auto&) {}), kCount);
  EXPECT_EQ(length([](auto& batch) { batch[9].bytes = 1; }), 9u);
  EXPECT_EQ(length([](auto& batch) { batch[9].priority = 1; }), 9u);
  EXPECT_EQ(length([](auto& batch) { batch[9].route = Route::kTcp; }), 9u);
  EXPECT_EQ(length([](auto& batch) { batch[9].defined = false; }), 9u);
  EXPECT_EQ(length([](auto& batch) { batch[9].prepared = true; }), 9u);
  EXPECT_EQ(length([](auto& batch) { batch[9].deadline += absl::Seconds(1); }), 9u);
  EXPECT_EQ(length([](auto& batch) { batch[9].shape.given = true; }), 9u);
  EXPECT_EQ(length([](auto& batch) { batch[9].key.destination = GlobalDeviceId(3); }), 9u);
  EXPECT_EQ(length([](auto& batch) { batch[9].key.domain = "other"; }), 9u);
  EXPECT_EQ(length([](auto& batch) { batch[9].continues = TransferId(1); }), 9u);
  EXPECT_EQ(length([](auto& batch) { batch[9].over_value = 77; }), 9u);
  EXPECT_EQ(length([](auto& batch) { batch[9].layout = {{ArenaId(11), 0, 4096}}; }), 9u);
  EXPECT_EQ(length([](auto& batch) { batch[5].bytes = 1; }), 1u);  // too few
  EXPECT_EQ(length([](auto& batch) { batch[0].defined = false; }), 1u);
  const std::vector<TransferSpec> many = Batch(Side::kSend, 300);
  EXPECT_EQ(ConvoyLength(many), kMostInConvoy);
}

TEST_F(EngineConvoyTest, AnOfferThatIsNoConvoyIsIgnored) {
  two_.PostBatch(Batch(Side::kSend));
  const Offer good = LastMessage<Offer>(two_, kA);
  ASSERT_EQ(good.key.count, kCount);
  two_.daemons[kA].to_other.clear();
  const auto ignored = [&](auto change) {
    Offer offer = good;
    change(offer);
    const uint64_t before = two_.b().view().ignored_messages();
    two_.b().OnMessage(two_.now, PeerId(kA), offer);
    return two_.b().view().ignored_messages() > before && two_.b().view().waiting_offers() == 0;
  };
  EXPECT_TRUE(ignored([](Offer& offer) { offer.key.key.pop_back(); }));
  EXPECT_TRUE(ignored([](Offer& offer) { offer.key.key[0] = 0; }));
  EXPECT_TRUE(ignored([](Offer& offer) { offer.key.count = 3; }));
  EXPECT_TRUE(ignored([](Offer& offer) { offer.key.count = 129; }));
  EXPECT_TRUE(ignored([](Offer& offer) { offer.key.key.clear(); }));
  EXPECT_TRUE(ignored([](Offer& offer) { --offer.bytes; }));
  EXPECT_TRUE(ignored([](Offer& offer) { offer.ready = false; }));
  EXPECT_TRUE(ignored([](Offer& offer) { offer.prepared = true; }));
  EXPECT_TRUE(ignored([](Offer& offer) { offer.continues = true; }));
  two_.b().OnMessage(two_.now, PeerId(kA), good);
  EXPECT_EQ(two_.b().view().waiting_offers(), kCount);
  two_.b().OnMessage(two_.now, PeerId(kA), Withdraw{good.transfer, Cancelled()});  // never said
  EXPECT_EQ(two_.b().view().waiting_offers(), kCount);
}

TEST_F(EngineConvoyTest, WhoseBoundHasRoomForSomeIsKeptSome) {
  two_ = TwoDaemons({.bounds = {.offers_per_peer = 20}});
  two_.LinkUp();
  two_.PostBatch(Batch(Side::kSend));
  two_.Run();
  EXPECT_EQ(two_.b().view().waiting_offers(), 5u);  // of one session at most a quarter
  EXPECT_EQ(Over(kA), std::make_pair(kCount - 5, size_t{0}));
}

TEST(ConvoyTest, HasTheKeysAndTheBytesOfAll) {
  std::vector<TransferSpec> members;
  for (size_t i = 0; i < 10; ++i) {
    TransferSpec spec =
        SpecOf(Side::kSend, std::string(1 + i * 7, static_cast<char>('a' + i)), 0, 2);
    spec.layout = Layout({Range{ArenaId(10), i == 4 ? 0 : 4096 * (20 - i), 4096}});
    spec.record_bytes = i;
    members.push_back(spec);
  }
  members[1].layout = {{ArenaId(10), 4096 * 21, 4096}};  // follows the first one
  const TransferSpec convoy = MakeConvoy(members);
  EXPECT_EQ(convoy.key.count, 10u);
  EXPECT_EQ(convoy.bytes, 40960u);
  EXPECT_EQ(convoy.record_bytes, 45u);
  EXPECT_EQ(convoy.layout.stretches(), 9u);
  size_t place = 0;
  for (PackedKeys keys(convoy.key); !keys.AtEnd(); keys.Next(), ++place) {
    EXPECT_EQ(keys.key(), members[place].key.key);
    EXPECT_EQ(MemberKey(convoy.key, place), members[place].key);
    EXPECT_EQ(MemberLayout(convoy.layout, place, 10), members[place].layout);
  }
  EXPECT_EQ(place, 10u);
}

}  // namespace
}  // namespace ferry
