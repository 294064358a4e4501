// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/peer_codec.h"

#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/daemon/support.h"
#include "transfer/members.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using testing::Is;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// What arrives when `frame` goes over the wire.
absl::StatusOr<PeerFrame> OverTheWire(const PeerFrame& frame) {
  peer::v1::Frame sent;
  Encode(frame, &sent);
  peer::v1::Frame received;
  EXPECT_TRUE(received.ParseFromString(sent.SerializeAsString()));
  return Decode(received);
}

template <typename Message>
Message MessageOverTheWire(const Message& message) {
  absl::StatusOr<PeerFrame> frame = OverTheWire({{{message}, {}}});
  EXPECT_THAT(frame, Is("OK"));
  if (!frame.ok() || frame->messages.size() != 1) return {};
  const Message* arrived = std::get_if<Message>(&frame->messages[0]);
  EXPECT_NE(arrived, nullptr);
  return arrived == nullptr ? Message{} : *arrived;
}

constexpr TransferId kTransfer = MakeTransferId(SessionId(77), 1234567);

Offer SomeOffer() {
  Offer offer;
  offer.transfer = kTransfer;
  offer.key = {"secret", GlobalDeviceId(1), GlobalDeviceId(1'000'000'000'000),
               std::string("\0k\xff", 3)};
  offer.bytes = 6;
  offer.data_type = DataType::kF8E5M2;
  offer.shape.given = true;
  offer.shape.dims = {2, 3};
  offer.layout = {{ArenaId(4), 5, 2}, {ArenaId(1'000'000'000'007), 1'000'000'000'000, 4}};
  offer.ready = false;
  offer.deadline = absl::Seconds(59) + absl::Nanoseconds(123'456'789);
  offer.priority = -7;
  offer.route = Route::kUcx;
  offer.prepared = true;
  offer.slot = kPreparedSlots;
  offer.continues = true;
  return offer;
}

TEST(PeerCodec, AnOfferArrivesAsItWasSent) {
  const Offer before = SomeOffer();
  const Offer after = MessageOverTheWire(before);
  EXPECT_EQ(after.transfer, before.transfer);
  EXPECT_EQ(after.key, before.key);
  EXPECT_EQ(after.bytes, before.bytes);
  EXPECT_EQ(after.data_type, before.data_type);
  EXPECT_EQ(after.shape, before.shape);
  EXPECT_EQ(after.layout, before.layout);
  EXPECT_EQ(after.ready, before.ready);
  EXPECT_EQ(after.deadline, before.deadline);
  EXPECT_EQ(after.priority, before.priority);
  EXPECT_EQ(after.route, before.route);
  EXPECT_EQ(after.prepared, before.prepared);
  EXPECT_EQ(after.slot, before.slot);
  EXPECT_EQ(after.continues, before.continues);
}

TEST(PeerCodec, LayoutsOfBlocksArriveAsTheyWereSent) {
  Offer offer = SomeOffer();
  offer.layout = *Layout::Strided(ArenaId(4), 5, 2, 7, 3);
  EXPECT_EQ(MessageOverTheWire(offer).layout, offer.layout);
  offer.layout = *Layout::BlockTable(ArenaId(4), 5, 2, {9, 1'000'000'000'000, 9});
  EXPECT_EQ(MessageOverTheWire(offer).layout, offer.layout);
  offer.bytes = 0;
  for (const Layout& layout :
       {*Layout::Strided(ArenaId(4), 5, 2, 7, 0), *Layout::BlockTable(ArenaId(4), 5, 2, {})}) {
    offer.layout = layout;
    EXPECT_EQ(MessageOverTheWire(offer).layout, layout);
  }
}

TEST(PeerCodec, ATableIsFewBytesABlock) {
  Offer offer = SomeOffer();
  std::vector<uint64_t> indices(10'000);
  std::iota(indices.begin(), indices.end(), 0);
  offer.bytes = 4096 * indices.size();
  offer.layout = *Layout::BlockTable(ArenaId(4), 0, 4096, std::move(indices));
  peer::v1::Frame proto;
  Encode({{{offer}, {}}}, &proto);
  EXPECT_LT(proto.ByteSizeLong(), 2 * 10'000u + 200);
}

TEST(PeerCodec, AnOfferThatSaysLittleArrivesSo) {
  Offer before;
  before.transfer = kTransfer;
  before.key.key = "k";
  const Offer after = MessageOverTheWire(before);
  EXPECT_TRUE(after.ready);
  EXPECT_FALSE(after.shape.given);
  EXPECT_EQ(after.deadline, absl::InfiniteDuration());
  EXPECT_EQ(after.route, Route::kUnspecified);
  EXPECT_THAT(after.layout.extents(), IsEmpty());
  before.shape.given = true;  // a scalar
  before.deadline = absl::ZeroDuration();
  EXPECT_TRUE(MessageOverTheWire(before).shape.given);
  EXPECT_EQ(MessageOverTheWire(before).deadline, absl::ZeroDuration());
}

TEST(PeerCodec, EveryOtherMessageArrivesAsItWasSent) {
  EXPECT_EQ(MessageOverTheWire(Matched{kTransfer}).transfer, kTransfer);
  EXPECT_EQ(MessageOverTheWire(Ready{kTransfer}).transfer, kTransfer);
  const Go go = MessageOverTheWire(Go{kTransfer, 3, Route::kMapped, ~uint64_t{0}, -100});
  EXPECT_EQ(go.transfer, kTransfer);
  EXPECT_EQ(go.attempt, 3u);
  EXPECT_EQ(go.route, Route::kMapped);
  EXPECT_EQ(go.tag, ~uint64_t{0});
  const Done good = MessageOverTheWire(Done{kTransfer, absl::OkStatus(), Route::kUcx});
  EXPECT_EQ(good.transfer, kTransfer);
  EXPECT_THAT(good.status, Is("OK"));
  EXPECT_EQ(good.route, Route::kUcx);
  const absl::Status why =
      Error(absl::StatusCode::kAborted, Reason::kPoisoned, "NaN", {{"step", "9"}});
  const Done bad = MessageOverTheWire(Done{kTransfer, why, Route::kUnspecified});
  EXPECT_THAT(bad.status, Is("ABORTED/POISONED", "NaN"));
  EXPECT_EQ(MetadataOf(bad.status).at("step"), "9");
  const Withdraw withdraw = MessageOverTheWire(Withdraw{kTransfer, why});
  EXPECT_EQ(withdraw.transfer, kTransfer);
  EXPECT_THAT(withdraw.status, Is("ABORTED/POISONED"));
  const SendFailed failed = MessageOverTheWire(SendFailed{kTransfer, 2, why});
  EXPECT_EQ(failed.transfer, kTransfer);
  EXPECT_EQ(failed.attempt, 2u);
  EXPECT_THAT(failed.status, Is("ABORTED/POISONED"));
}

TEST(PeerCodec, WhatWaitsInsteadArrivesAsItWasSent) {
  const absl::Status why =
      Error(absl::StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer, "alone");
  const auto done_with = [&](std::optional<NearTexts> near) {
    return MessageOverTheWire(Done{kTransfer, why, Route::kUnspecified, std::move(near)}).near;
  };
  EXPECT_EQ(done_with(std::nullopt), std::nullopt);
  EXPECT_EQ(done_with(NearTexts{}), NearTexts{});
  EXPECT_EQ(done_with(NearTexts{"a", "b"}), (NearTexts{"a", "b"}));
  for (const absl::Duration left : {absl::InfiniteDuration(), absl::Milliseconds(1500)}) {
    const bool empty = left < absl::InfiniteDuration();
    const Draining draining = MessageOverTheWire(Draining{true, left, empty});
    EXPECT_TRUE(draining.on);
    EXPECT_EQ(draining.left, left);
    EXPECT_EQ(draining.empty, empty);
  }
  EXPECT_FALSE(MessageOverTheWire(Draining{}).on);
  const MembersTold told = MessageOverTheWire(MembersTold{GlobalDeviceId(7), "tag", 3, "m"});
  EXPECT_EQ(told.device, GlobalDeviceId(7));
  EXPECT_EQ(told.domain, "tag");
  EXPECT_EQ(told.count, 3u);
  EXPECT_EQ(told.last, "m");
  const Seek seek = MessageOverTheWire(Seek{kTransfer, SomeOffer().key});
  EXPECT_EQ(seek.transfer, kTransfer);
  EXPECT_EQ(seek.key, SomeOffer().key);
  EXPECT_EQ(MessageOverTheWire(Split{kTransfer}).transfer, kTransfer);
  EXPECT_TRUE(MessageOverTheWire(Split{kTransfer}).status.ok());
  EXPECT_EQ(MessageOverTheWire(Split{kTransfer, absl::AbortedError("all of it")}).status.message(),
            "all of it");
  EXPECT_EQ(MessageOverTheWire(Apart{kTransfer}).transfer, kTransfer);
  Offer convoy;
  convoy.key = {"tag", GlobalDeviceId(1), GlobalDeviceId(2), std::string(100, 'k'), 3};
  convoy.bytes = 6;
  convoy.layout = {{ArenaId(4), 5, 6}};
  EXPECT_EQ(MessageOverTheWire(convoy).key, convoy.key);
  const Sought sought = MessageOverTheWire(Sought{kTransfer, NearTexts{"a"}});
  EXPECT_EQ(sought.transfer, kTransfer);
  EXPECT_EQ(sought.near, NearTexts{"a"});
  EXPECT_EQ(MessageOverTheWire(Sought{kTransfer, std::nullopt}).near, std::nullopt);
}

TEST(PeerCodec, MembersHaveBounds) {
  peer::v1::Frame wire;
  peer::v1::Members* const members = wire.add_events()->mutable_members();
  members->set_domain(std::string(kMaxDomainBytes, 'x'));
  members->set_last(std::string(Members::kMostName, 'x'));
  EXPECT_THAT(Decode(wire), Is("OK"));
  members->set_domain(std::string(kMaxDomainBytes + 1, 'x'));
  EXPECT_THAT(Decode(wire), Is("INVALID_ARGUMENT/PROTOCOL_ERROR", "members out of bounds"));
  members->set_domain("x");
  members->set_last(std::string(Members::kMostName + 1, 'x'));
  EXPECT_THAT(Decode(wire), Is("INVALID_ARGUMENT/PROTOCOL_ERROR", "members out of bounds"));
}

TEST(PeerCodec, WhatWaitsInsteadHasBounds) {
  const Sought cut = MessageOverTheWire(
      Sought{kTransfer, NearTexts{std::string(2 * kMostNearBytes, 'x'), "\xff"}});
  EXPECT_EQ(cut.near, (NearTexts{std::string(kMostNearBytes, 'x'), "?"}));
  peer::v1::Frame wire;
  for (size_t i = 0; i <= kMostNearTexts; ++i) {
    wire.mutable_events()->Clear();
    peer::v1::NearMisses* const near = wire.add_events()->mutable_sought()->mutable_near();
    for (size_t text = 0; text < i; ++text) near->add_texts("x");
    EXPECT_THAT(Decode(wire), Is("OK"));
  }
  wire.mutable_events(0)->mutable_sought()->mutable_near()->add_texts("one too many");
  EXPECT_THAT(Decode(wire), Is("INVALID_ARGUMENT/PROTOCOL_ERROR", "too many near misses"));
  for (const auto& [key, domain] : std::vector<std::pair<size_t, size_t>>{
           {0, 0}, {kMaxKeyBytes + 1, 0}, {1, kMaxDomainBytes + 1}}) {
    peer::v1::Frame seek;
    seek.add_events()->mutable_seek()->set_key(std::string(key, 'k'));
    seek.mutable_events(0)->mutable_seek()->set_domain(std::string(domain, 'd'));
    EXPECT_THAT(Decode(seek), Is("INVALID_ARGUMENT/PROTOCOL_ERROR", "a seek out of bounds"));
  }
}

TEST(PeerCodec, EveryMessageOfGroupsArrivesAsItWasSent) {
  const Clique clique{GlobalDeviceId(3), GlobalDeviceId(1'000'000'000'000)};
  const absl::Status why = Error(absl::StatusCode::kAborted, Reason::kCommAborted, "it hung");
  const HandOver hand_over = MessageOverTheWire(HandOver{kTransfer, -3, true});
  EXPECT_EQ(hand_over.transfer, kTransfer);
  EXPECT_EQ(hand_over.priority, -3);
  EXPECT_TRUE(hand_over.unstaged);
  EXPECT_FALSE(MessageOverTheWire(HandOver{kTransfer}).unstaged);
  EXPECT_EQ(MessageOverTheWire(TakeBack{kTransfer}).transfer, kTransfer);
  const PairName bundle{true, kTransfer, 3};
  const Fire fire = MessageOverTheWire(Fire{clique, bundle, -7, true});
  EXPECT_EQ(fire.clique, clique);
  EXPECT_EQ(fire.bundle, bundle);
  EXPECT_EQ(fire.priority, -7);
  EXPECT_TRUE(fire.unstaged);
  const std::vector<Chunk> chunks = {{{true, kTransfer}, 1'000'000'000'000, 5},
                                     {{false, {}}, 0, 0},
                                     {{true, kTransfer, 1024}, 7, 9}};
  const Group group = MessageOverTheWire(Group{clique, 4, 1'000'000'000'001, chunks});
  EXPECT_EQ(group.clique, clique);
  EXPECT_EQ(group.attempt, 4u);
  EXPECT_EQ(group.number, 1'000'000'000'001u);
  EXPECT_EQ(group.chunks, chunks);
  const Granted granted = MessageOverTheWire(Granted{clique, 4, 9, {0, 1023}});
  EXPECT_EQ(granted.clique, clique);
  EXPECT_EQ(granted.attempt, 4u);
  EXPECT_EQ(granted.number, 9u);
  EXPECT_THAT(granted.refused, ElementsAre(0, 1023));
  const GroupFailed failed = MessageOverTheWire(GroupFailed{clique, 4, 9, why});
  EXPECT_EQ(failed.clique, clique);
  EXPECT_EQ(failed.attempt, 4u);
  EXPECT_EQ(failed.number, 9u);
  EXPECT_THAT(failed.status, Is("ABORTED/COMM_ABORTED", "it hung"));
  const AttemptOver aborted = MessageOverTheWire(AttemptOver{clique, 4, 9, why});
  EXPECT_EQ(aborted.clique, clique);
  EXPECT_EQ(aborted.attempt, 4u);
  EXPECT_EQ(aborted.number, 9u);
  EXPECT_THAT(aborted.status, Is("ABORTED/COMM_ABORTED", "it hung"));
  EXPECT_THAT(MessageOverTheWire(AttemptOver{clique, 4, 0, {}}).status, Is("OK"));
  const Evict evict = MessageOverTheWire(Evict{clique, 4});
  EXPECT_EQ(evict.clique, clique);
  EXPECT_EQ(evict.attempt, 4u);
  const OpenComm open = MessageOverTheWire(OpenComm{clique, 5, std::string("\0id", 3)});
  EXPECT_EQ(open.clique, clique);
  EXPECT_EQ(open.attempt, 5u);
  EXPECT_EQ(open.unique_id, std::string("\0id", 3));
  EXPECT_EQ(MessageOverTheWire(WarmComm{clique}).clique, clique);
  EXPECT_THAT(OverTheWire({{{OpenComm{clique, 5, std::string(1025, 'u')}}, {}}}),
              Is("INVALID_ARGUMENT/PROTOCOL_ERROR", "an open out of bounds"));
}

TEST(PeerCodec, AGroupOrGrantBeyondTheBoundsIsRefused) {
  EXPECT_THAT(OverTheWire({{{Group{{}, 1, 1, std::vector<Chunk>(1024)}}, {}}}), Is("OK"));
  EXPECT_THAT(OverTheWire({{{Group{{}, 1, 1, std::vector<Chunk>(1025)}}, {}}}),
              Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  EXPECT_THAT(OverTheWire({{{Granted{{}, 1, 1, std::vector<uint32_t>(1025)}}, {}}}),
              Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
}

TEST(PeerCodec, MessagesStayInOrderAndFramesAreMerged) {
  peer::v1::Frame wire;
  Encode({{{Ready{TransferId(1)}, Matched{TransferId(2)}}, {ArenaId(3)}}}, &wire);
  Encode({}, &wire);  // a sign of life adds nothing
  Encode({{{Ready{TransferId(4)}}, {ArenaId(5), ArenaId(6)}}}, &wire);
  const absl::StatusOr<PeerFrame> frame = Decode(wire);
  ASSERT_THAT(frame, Is("OK"));
  EXPECT_FALSE(frame->hello.has_value());
  ASSERT_THAT(frame->messages, SizeIs(3));
  EXPECT_EQ(std::get<Ready>(frame->messages[0]).transfer, TransferId(1));
  EXPECT_EQ(std::get<Matched>(frame->messages[1]).transfer, TransferId(2));
  EXPECT_EQ(std::get<Ready>(frame->messages[2]).transfer, TransferId(4));
  EXPECT_THAT(frame->arenas_gone, ElementsAre(ArenaId(3), ArenaId(5), ArenaId(6)));
}

TEST(PeerCodec, FramesAreMergedWhereNoEventIsBetweenThem) {
  const auto numbered = [](uint64_t first, uint64_t count) {
    PeerFrame frame;
    for (uint64_t i = 0; i < count; ++i) frame.messages.push_back(Ready{TransferId(first + i)});
    frame.first_event = first;
    return frame;
  };
  peer::v1::Frame out;
  EXPECT_TRUE(Follows(PeerFrame{}, out));
  EXPECT_FALSE(Follows({{}, PeerHello()}, out));
  EXPECT_TRUE(Follows(numbered(5, 2), out)) << "a sign of life has no place in the order";
  Encode(PeerFrame{}, &out);
  Encode(numbered(5, 2), &out);
  EXPECT_FALSE(Follows(numbered(8, 1), out));
  EXPECT_TRUE(Follows(PeerFrame{}, out));
  Encode(PeerFrame{}, &out);
  ASSERT_TRUE(Follows(numbered(7, 1), out));
  Encode(numbered(7, 1), &out);
  const absl::StatusOr<PeerFrame> frame = Decode(out);
  ASSERT_THAT(frame, Is("OK"));
  EXPECT_EQ(frame->first_event, 5u);
  ASSERT_THAT(frame->messages, SizeIs(3));
  EXPECT_EQ(std::get<Ready>(frame->messages[2]).transfer, TransferId(7));
  EXPECT_EQ(OverTheWire({})->first_event, 0u);
}

TEST(PeerCodec, AnOfferBeyondTheBoundsIsRefused) {
  struct Case {
    const char* what;
    std::function<void(peer::v1::Offer&)> edit;
    bool good;
  };
  const auto lengths = [](peer::v1::Offer& offer, std::vector<uint64_t> all, uint64_t bytes) {
    offer.clear_ranges();
    for (const uint64_t length : all) offer.add_ranges()->set_length(length);
    offer.set_bytes(bytes);
  };
  constexpr uint64_t kMax = ~uint64_t{0};
  const std::vector<Case> cases = {
      {"the offer as it is", [](auto&) {}, true},
      {"no key", [](auto& offer) { offer.clear_key(); }, false},
      {"a key of 64 bytes", [](auto& offer) { offer.set_key(std::string(64, 'k')); }, true},
      {"a key of 65 bytes", [](auto& offer) { offer.set_key(std::string(65, 'k')); }, false},
      {"a domain of 32 bytes", [](auto& offer) { offer.set_domain(std::string(32, 'd')); }, true},
      {"a domain of 33 bytes", [](auto& offer) { offer.set_domain(std::string(33, 'd')); }, false},
      {"a slot beyond the page", [](auto& offer) { offer.set_slot(kPreparedSlots + 1); }, false},
      {"ranges below the bytes",
       [&](auto& offer) {
         lengths(offer, {1, 2}, 4);
       },
       false},
      {"ranges beyond the bytes",
       [&](auto& offer) {
         lengths(offer, {3, 2}, 4);
       },
       false},
      {"ranges that wrap to the bytes",
       [&](auto& offer) {
         lengths(offer, {kMax, 5}, 4);
       },
       false},
      {"all bytes there are",
       [&](auto& offer) {
         lengths(offer, {kMax - 1, 1}, kMax);
       },
       true},
      {"no ranges and no bytes", [&](auto& offer) { lengths(offer, {}, 0); }, true},
      {"65,536 ranges", [&](auto& o) { lengths(o, std::vector<uint64_t>(65536, 0), 0); }, true},
      {"65,537 ranges", [&](auto& o) { lengths(o, std::vector<uint64_t>(65537, 0), 0); }, false},
      {"blocks at a stride",
       [&](auto& offer) {
         lengths(offer, {}, 6);
         offer.mutable_strided()->set_block_bytes(2);
         offer.mutable_strided()->set_count(3);
       },
       true},
      {"blocks that are not of its bytes",
       [&](auto& offer) {
         lengths(offer, {}, 6);
         offer.mutable_strided()->set_block_bytes(2);
         offer.mutable_strided()->set_count(4);
       },
       false},
      {"blocks that wrap to the bytes",
       [&](auto& offer) {
         lengths(offer, {}, 0);
         offer.mutable_strided()->set_block_bytes(uint64_t{1} << 63);
         offer.mutable_strided()->set_count(2);
       },
       false},
      {"a block beyond all numbers",
       [&](auto& offer) {
         lengths(offer, {}, 2);
         offer.mutable_blocks()->set_block_bytes(2);
         offer.mutable_blocks()->add_indices(kMax);
       },
       false},
      {"1,048,576 blocks",
       [&](auto& offer) {
         lengths(offer, {}, kMaxBlocks);
         offer.mutable_strided()->set_block_bytes(1);
         offer.mutable_strided()->set_count(kMaxBlocks);
       },
       true},
      {"1,048,577 blocks",
       [&](auto& offer) {
         lengths(offer, {}, kMaxBlocks + 1);
         offer.mutable_strided()->set_block_bytes(1);
         offer.mutable_strided()->set_count(kMaxBlocks + 1);
       },
       false},
      {"a table of 1,048,577 blocks",
       [&](auto& offer) {
         lengths(offer, {}, 0);
         offer.mutable_blocks()->mutable_indices()->Resize(kMaxBlocks + 1, 0);
       },
       false},
      {"ranges and blocks", [](auto& offer) { offer.mutable_blocks(); }, false},
      {"a stride and blocks",
       [&](auto& offer) {
         lengths(offer, {}, 0);
         offer.mutable_strided();
         offer.mutable_blocks();
       },
       false},
      {"8 dimensions",
       [](auto& offer) {
         for (int i = 0; i < 6; ++i) offer.add_dims(1);
       },
       true},
      {"9 dimensions",
       [](auto& offer) {
         for (int i = 0; i < 7; ++i) offer.add_dims(1);
       },
       false},
      {"a negative dimension", [](auto& offer) { offer.set_dims(0, -2); }, false},
      {"type 20", [](auto& o) { o.set_data_type(static_cast<v1::DataType>(kDataTypes)); }, false},
      {"type -1", [](auto& o) { o.set_data_type(static_cast<v1::DataType>(-1)); }, false},
      {"type 256", [](auto& o) { o.set_data_type(static_cast<v1::DataType>(256)); }, false},
      {"route 5", [](auto& o) { o.set_route(static_cast<v1::Route>(kRoutes)); }, false},
      {"route -1", [](auto& o) { o.set_route(static_cast<v1::Route>(-1)); }, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    peer::v1::Frame wire;
    Encode({{{SomeOffer()}, {}}}, &wire);
    c.edit(*wire.mutable_events(0)->mutable_offer());
    EXPECT_THAT(Decode(wire), Is(c.good ? "OK" : "INVALID_ARGUMENT/PROTOCOL_ERROR"));
  }
}

TEST(PeerCodec, AGoBeyondTheBoundsIsRefused) {
  for (const int route : {0, -1, kRoutes}) {  // 0: it must say how
    peer::v1::Frame wire;
    Encode({{{Go{kTransfer, 1, Route::kUcx, 1}}, {}}}, &wire);
    wire.mutable_events(0)->mutable_go()->set_route(static_cast<v1::Route>(route));
    EXPECT_THAT(Decode(wire), Is("INVALID_ARGUMENT/PROTOCOL_ERROR")) << route;
  }
}

TEST(PeerCodec, ADoneBeyondTheBoundsIsRefused) {
  for (const int route : {-1, kRoutes}) {
    peer::v1::Frame wire;
    wire.add_events()->mutable_done()->set_route(static_cast<v1::Route>(route));
    EXPECT_THAT(Decode(wire), Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  }
}

TEST(PeerCodec, AFailureWithoutAStatusIsStillAFailure) {
  peer::v1::Frame wire;
  wire.add_events()->mutable_withdraw();
  wire.add_events()->mutable_send_failed();
  wire.add_events()->mutable_group_failed();
  wire.add_events()->mutable_attempt_over()->mutable_status();
  wire.add_events()->mutable_done()->mutable_status();  // says that it failed, and not how
  const absl::StatusOr<PeerFrame> frame = Decode(wire);
  ASSERT_THAT(frame, Is("OK"));
  ASSERT_THAT(frame->messages, SizeIs(5));
  EXPECT_THAT(std::get<Withdraw>(frame->messages[0]).status,
              Is("INVALID_ARGUMENT/PROTOCOL_ERROR", "a failure without a status"));
  EXPECT_THAT(std::get<SendFailed>(frame->messages[1]).status,
              Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  EXPECT_THAT(std::get<GroupFailed>(frame->messages[2]).status,
              Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  EXPECT_THAT(std::get<AttemptOver>(frame->messages[3]).status,
              Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
  EXPECT_THAT(std::get<Done>(frame->messages[4]).status, Is("INVALID_ARGUMENT/PROTOCOL_ERROR"));
}

TEST(PeerCodec, AnEventWithoutAStepIsRefused) {
  peer::v1::Frame wire;
  wire.add_events()->set_transfer(1);
  EXPECT_THAT(Decode(wire), Is("INVALID_ARGUMENT/PROTOCOL_ERROR", "an event without a step"));
}

}  // namespace
}  // namespace ferry
