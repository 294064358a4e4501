// SPDX-License-Identifier: Apache-2.0
#include "two_daemons.h"

namespace ferry {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class EnginePostTest : public testing::Test {
 protected:
  absl::Status CheckOne(TransferSpec spec, int node = kA) {
    auto errors = two_.engine(node).Check({&spec, 1});
    return errors.empty() ? absl::OkStatus() : errors[0].status;
  }
  TwoDaemons two_;
};

TEST_F(EnginePostTest, CheckListsEveryBadEntryAndNoGoodOne) {
  std::vector<TransferSpec> batch = {
      SpecOf(Side::kSend, "good", 0, 2), SpecOf(Side::kSend, "x", 0, 99),
      SpecOf(Side::kSend, "good", 0, 2), SpecOf(Side::kSend, "y", 2, 0),
      SpecOf(Side::kSend, "good", 0, 3)};
  auto errors = two_.a().Check(batch);
  ASSERT_THAT(errors, SizeIs(3));
  EXPECT_EQ(errors[0].index, 1u);
  EXPECT_THAT(errors[0].status, Fails(StatusCode::kNotFound, Reason::kDeviceUnknown));
  EXPECT_THAT(errors[0].status, Says("device 99"));
  EXPECT_EQ(errors[1].index, 2u);
  EXPECT_THAT(errors[1].status, Fails(StatusCode::kAlreadyExists, Reason::kKeyInUse));
  EXPECT_EQ(errors[2].index, 3u);
  EXPECT_THAT(errors[2].status, Fails(StatusCode::kNotFound, Reason::kDeviceUnknown));
  EXPECT_THAT(errors[2].status, Says("node-b"));
}

TEST_F(EnginePostTest, CheckRefusesAKeyThatWaitsOnTheSameSideOnly) {
  two_.Receive("k");
  EXPECT_THAT(CheckOne(SpecOf(Side::kReceive, "k", 0, 2), kB),
              Fails(StatusCode::kAlreadyExists, Reason::kKeyInUse));
  EXPECT_TRUE(CheckOne(SpecOf(Side::kReceive, "l", 0, 2), kB).ok());
  two_.Post(SpecOf(Side::kReceive, "local", 0, 1));
  EXPECT_TRUE(CheckOne(SpecOf(Side::kSend, "local", 0, 1)).ok());
}

TEST_F(EnginePostTest, CheckRefusesRoutesThatCanNeverBe) {
  auto with_route = [](uint64_t destination, Route route) {
    TransferSpec spec = SpecOf(Side::kSend, "k", 0, destination);
    spec.route = route;
    return spec;
  };
  const auto unavailable = Fails(StatusCode::kFailedPrecondition, Reason::kRouteUnavailable);
  EXPECT_THAT(CheckOne(with_route(2, Route::kLocal)), unavailable);
  EXPECT_THAT(CheckOne(with_route(1, Route::kMapped)), unavailable);
  EXPECT_THAT(CheckOne(with_route(1, Route::kUcx)), unavailable);
  EXPECT_THAT(CheckOne(with_route(2, Route::kNccl)), unavailable);
  EXPECT_THAT(CheckOne(with_route(2, Route::kNccl)), Says("not in the configured order"));
  EXPECT_TRUE(CheckOne(with_route(1, Route::kLocal)).ok());
  EXPECT_TRUE(CheckOne(with_route(2, Route::kUcx)).ok());  // the link may come
}

TEST_F(EnginePostTest, ASendWaitsForTheLinkAndGoesOutWhenItIsUp) {
  const TransferId id = two_.Send();
  two_.Take(kA);
  EXPECT_THAT(two_.daemons[kA].wanted, ElementsAre(PeerId(1)));
  EXPECT_THAT(two_.daemons[kA].to_other, IsEmpty());
  EXPECT_STREQ(two_.a().view().Find(id)->state, "waiting");
  two_.a().OnPeerUp(two_.now, PeerId(1), Routes(true, true));
  EXPECT_EQ(LastMessage<Offer>(two_, kA).transfer, id);
  EXPECT_STREQ(two_.a().view().Find(id)->state, "offered");
}

TEST_F(EnginePostTest, WhatWaitedForTheLinkGoesOutInTheOrderOfPosting) {
  std::vector<TransferId> ids;
  for (int i = 0; i < 50; ++i) ids.push_back(two_.Send(absl::StrCat("k", i)));
  two_.a().OnPeerUp(two_.now, PeerId(1), Routes(true, true));
  two_.Take(kA);
  ASSERT_THAT(two_.daemons[kA].to_other, SizeIs(50));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(std::get<Offer>(two_.daemons[kA].to_other[i]).transfer, ids[i]);
  }
}

TEST_F(EnginePostTest, APostedReceiveWantsTheLinkToItsSourceOnceAnOutbox) {
  two_.Receive("k");
  two_.Receive("l");
  two_.Take(kB);
  EXPECT_THAT(two_.daemons[kB].wanted, ElementsAre(PeerId(0)));
  two_.Post(SpecOf(Side::kReceive, "local", 2, 3));
  two_.Take(kB);
  EXPECT_THAT(two_.daemons[kB].wanted, SizeIs(1));
}

TEST_F(EnginePostTest, AnOfferCarriesWhatWasPosted) {
  two_.LinkUp();
  TransferSpec spec = SpecOf(Side::kSend, "k", 0, 2, 512);
  spec.data_type = DataType::kBF16;
  spec.shape = {true, {16, 16}};
  spec.priority = 7;
  spec.route = Route::kUcx;
  spec.defined = false;
  spec.deadline = two_.now + absl::Seconds(9);
  two_.Post(spec);
  const Offer offer = LastMessage<Offer>(two_, kA);
  EXPECT_EQ(offer.key, spec.key);
  EXPECT_EQ(offer.bytes, 512u);
  EXPECT_EQ(offer.data_type, DataType::kBF16);
  EXPECT_EQ(offer.shape, spec.shape);
  EXPECT_EQ(offer.priority, 7);
  EXPECT_EQ(offer.route, Route::kUcx);
  EXPECT_FALSE(offer.ready);
  EXPECT_EQ(offer.deadline, absl::Seconds(9));
  EXPECT_EQ(offer.layout, spec.layout);
}

TEST_F(EnginePostTest, ASentKeyIsInUseUntilTheDestinationHasMatchedIt) {
  two_.LinkUp();
  two_.Send("k");
  two_.Run();
  EXPECT_THAT(CheckOne(SpecOf(Side::kSend, "k", 0, 2)),
              Fails(StatusCode::kAlreadyExists, Reason::kKeyInUse));
  TransferSpec receive = SpecOf(Side::kReceive, "k", 0, 2);
  receive.defined = false;  // so that Matched is said
  two_.Post(receive);
  two_.Run();
  EXPECT_TRUE(CheckOne(SpecOf(Side::kSend, "k", 0, 2)).ok());
}

TEST_F(EnginePostTest, EqualKeysInSequenceMatchInOrder) {
  two_.LinkUp();
  for (uint64_t round = 0; round < 3; ++round) {
    TransferSpec receive = SpecOf(Side::kReceive, "k", 0, 2, 100 + round);
    receive.defined = false;
    const TransferId to = two_.Post(receive);
    const TransferId from = two_.Post(SpecOf(Side::kSend, "k", 0, 2, 100 + round));
    two_.Run();
    EXPECT_STREQ(two_.a().view().Find(from)->state, "matched");
    EXPECT_STREQ(two_.b().view().Find(to)->state, "matched");
  }
  EXPECT_EQ(two_.a().view().in_flight(), 3u);
}

TEST_F(EnginePostTest, UndefinedDataIsWatchedAtOnceOnBothSides) {
  TransferSpec send = SpecOf(Side::kSend, "k", 0, 2);
  send.defined = false;
  send.defined_timeline = 5;
  send.defined_value = 17;
  const TransferId id = two_.Post(send);
  TransferSpec receive = SpecOf(Side::kReceive, "k", 0, 2);
  receive.defined = false;
  receive.defined_value = 1;
  two_.Post(receive);
  two_.Run();
  ASSERT_THAT(two_.daemons[kA].watches, SizeIs(1));
  const WordWatch& watch = two_.daemons[kA].watches[0];
  EXPECT_EQ(watch.transfer, id);
  EXPECT_EQ(watch.device, GlobalDeviceId(0));
  EXPECT_EQ(watch.timeline, 5u);
  EXPECT_EQ(watch.value, 17u);
  ASSERT_THAT(two_.daemons[kB].watches, SizeIs(1));
  EXPECT_EQ(two_.daemons[kB].watches[0].device, GlobalDeviceId(2));
}

// A job's: whoever posted it says when its turn has come.
TEST_F(EnginePostTest, WhatHasNoValueIsDefinedByItsPoster) {
  two_.LinkUp();
  TransferSpec send = SpecOf(Side::kSend, "k", 0, 2);
  send.defined = false;
  const TransferId sent = two_.Post(send);
  TransferSpec receive = SpecOf(Side::kReceive, "k", 0, 2);
  receive.defined = false;
  const TransferId received = two_.Post(receive);
  two_.Run();
  EXPECT_THAT(two_.daemons[kA].watches, SizeIs(0));
  EXPECT_THAT(two_.daemons[kB].watches, SizeIs(0));
  EXPECT_THAT(two_.daemons[kB].launches, SizeIs(0));
  EXPECT_EQ(two_.a().view().Find(sent)->waits_for, "the job that it is a part of");
  two_.a().OnDefined(two_.now, sent);
  two_.Run();
  EXPECT_THAT(two_.daemons[kB].launches, SizeIs(0));
  two_.b().OnDefined(two_.now, received);
  two_.Run();
  EXPECT_THAT(two_.daemons[kB].launches, SizeIs(1));
}

TEST_F(EnginePostTest, ATransferThatEndsUndefinedIsUnwatched) {
  TransferSpec send = SpecOf(Side::kSend, "k", 0, 1);
  send.defined = false;
  const TransferId id = two_.Post(send);
  EXPECT_TRUE(two_.a().Cancel(two_.now, id, Cancelled()));
  two_.Run();
  EXPECT_THAT(two_.daemons[kA].unwatch, ElementsAre(id));
  two_.a().OnDefined(two_.now, id);  // crossed: nothing happens
  EXPECT_TRUE(two_.a().TakeOutbox().empty());
}

TEST_F(EnginePostTest, TheCountsFollowPostsAndEndings) {
  two_.Send("k");
  const TransferId other = two_.Post(SpecOf(Side::kSend, "l", 0, 2), SessionId(9));
  EXPECT_EQ(two_.a().view().in_flight(), 2u);
  EXPECT_EQ(two_.a().view().in_flight(kSession), 1u);
  EXPECT_EQ(two_.a().view().in_flight(SessionId(9)), 1u);
  two_.a().Cancel(two_.now, other, Cancelled());
  EXPECT_EQ(two_.a().view().in_flight(SessionId(9)), 0u);
  EXPECT_EQ(two_.a().view().in_flight(), 1u);
}

}  // namespace
}  // namespace ferry
