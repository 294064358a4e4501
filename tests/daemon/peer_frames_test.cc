// SPDX-License-Identifier: Apache-2.0
// A link's frames by its two roads, the stream and peer.sock: who takes which, and that what is
// heard is in order, once, and of this link.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "daemon/peer/link_frames.h"
#include "daemon/peer/peer_link.h"
#include "tests/daemon/peer_rig.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Is;
using ::testing::IsEmpty;
using testing::kNodeC;
using testing::kReset;
using testing::PeerRig;
using ::testing::SizeIs;
using testing::StreamRecord;

constexpr Door::ConnectionId kOurs = 51;    // our connection to node-c's peer.sock
constexpr Door::ConnectionId kTheirs = 90;  // theirs to ours

// `count` events to say.
std::vector<PeerMessage> Words(uint64_t count) {
  std::vector<PeerMessage> words;
  for (uint64_t i = 0; i < count; ++i) words.push_back(Ready{TransferId(i)});
  return words;
}

// --- What we say.

TEST(PeerFramesSaid, GoOverTheSocketOfAPeerOfThisHost) {
  PeerRig rig;
  const auto stream = rig.NodeCUp();
  for (const uint64_t count : {1, 2, 1}) rig.peers->Send(kNodeC, Words(count));
  EXPECT_THAT(stream->sent, SizeIs(2));  // our introduction and our hello
  ASSERT_THAT(rig.frames, SizeIs(3));
  for (const auto& sent : rig.frames) EXPECT_EQ(sent.connection, kOurs);
  EXPECT_EQ(rig.frames[0].frame.first_event, 1u);
  EXPECT_EQ(rig.frames[1].frame.first_event, 2u);
  EXPECT_EQ(rig.frames[2].frame.first_event, 4u);
  EXPECT_THAT(rig.frames[1].frame.messages, SizeIs(2));
}

TEST(PeerFramesSaid, GoByTheStreamWhereTheSocketTakesThemNot) {
  PeerRig rig;
  const auto stream = rig.NodeCUp();
  rig.peers->Send(kNodeC, Words(2));
  rig.requests_taken = false;
  rig.peers->Send(kNodeC, Words(3));
  rig.requests_taken = true;
  rig.peers->Send(kNodeC, Words(LinkFrames::kMostBySocket + 1));
  rig.peers->Send(kNodeC, Words(LinkFrames::kMostBySocket));
  ASSERT_THAT(rig.frames, SizeIs(2));
  ASSERT_THAT(stream->sent, SizeIs(4));  // our introduction and our hello first
  EXPECT_EQ(stream->sent[2].first_event, 3u);
  EXPECT_THAT(stream->sent[2].messages, SizeIs(3));
  EXPECT_EQ(stream->sent[3].first_event, 6u);
  EXPECT_EQ(rig.frames[1].frame.first_event, 6u + LinkFrames::kMostBySocket + 1);
}

TEST(PeerFramesSaid, DoNotOvertakeWhatWaitsForTheStream) {
  PeerRig rig;
  const auto stream = rig.NodeCUp();
  stream->waiting = 1;
  rig.peers->Send(kNodeC, Words(1));
  EXPECT_THAT(rig.frames, IsEmpty());
  EXPECT_THAT(stream->sent, SizeIs(3));
  stream->waiting = 0;
  rig.peers->Send(kNodeC, Words(1));
  EXPECT_THAT(rig.frames, SizeIs(1));
}

TEST(PeerFramesSaid, GoByTheStreamToWhomWeDoNotMap) {
  PeerRig refused;
  const auto unmapped = refused.GreetNodeC();
  refused.Answer(kNodeC, kReset, PeerSocketWelcome{});
  EXPECT_THAT(refused.closed, ElementsAre(kOurs));
  refused.peers->Send(kNodeC, Words(1));
  EXPECT_THAT(refused.frames, IsEmpty());
  EXPECT_THAT(unmapped->sent, SizeIs(3));
}

TEST(PeerFramesSaid, AreNoSignsOfLife) {
  PeerRig rig;
  const auto stream = rig.NodeCUp();
  rig.Advance(absl::Milliseconds(600));
  rig.peers->Send(kNodeC, Words(1));
  rig.Advance(absl::Milliseconds(400));
  ASSERT_THAT(stream->sent, SizeIs(3));
  EXPECT_EQ(stream->sent[2].events(), 0u);
}

TEST(PeerFramesSaid, AreCountedAnewOnEachLink) {
  PeerRig rig;
  rig.NodeCUp();
  rig.peers->Send(kNodeC, Words(5));
  rig.dialer.streams.back()->callbacks.on_closed(kReset);
  rig.NodeCUp();
  rig.peers->Send(kNodeC, Words(1));
  EXPECT_EQ(rig.frames.back().frame.first_event, 1u);
}

TEST(PeerFramesSaid, AreLostWithTheirConnectionSoTheLinkIsToo) {
  PeerRig rig;
  const auto stream = rig.NodeCUp();
  rig.peers->Send(kNodeC, Words(1));
  rig.peers->OnSocketClosed(kOurs);
  EXPECT_EQ(rig.StateOf(kNodeC), "lost");
  EXPECT_EQ(rig.RowOf(kNodeC).error, "/node-c/peer.sock of node-c closed");
  ASSERT_TRUE(stream->closed.has_value());
  EXPECT_THAT(*stream->closed, Is("UNAVAILABLE/PEER_UNREACHABLE"));
}

// --- What we hear.

// node-c's link is up, and it is known on our peer.sock.
struct Hearing : PeerRig {
  Hearing() : stream(NodeCUp()) {
    Ask(kTheirs, PeerSocketHello{"node-c", OurIntroduction(*stream).nonce});
  }
  void HearOnStream(uint64_t first_event, std::vector<PeerMessage> messages) {
    PeerFrame frame{{std::move(messages), {}}};
    frame.first_event = first_event;
    stream->callbacks.on_frame(std::move(frame));
    Turn();
  }
  PeerMessage SomeOffer(uint64_t i) { return OfferOfNodeC(i, ArenaId(5), 8, absl::StrCat("k", i)); }
  size_t offers() const { return driver->engine().view().waiting_offers(); }

  const std::shared_ptr<StreamRecord> stream;
};

TEST(PeerFramesHeard, InAnyOrderByEitherRoadAreTakenInTheirOrder) {
  std::mt19937 random(20261122);
  for (int round = 0; round < 200; ++round) {
    Hearing rig;
    // An offer and its withdrawal, again and again under one key: any other order is refused, or
    // ignored, by the engine.
    std::vector<PeerMessage> said;
    std::vector<TransferId> withdrawn;
    for (uint64_t i = 1; i <= 12; ++i) {
      said.push_back(rig.OfferOfNodeC(i, ArenaId(5), 8, "k"));
      said.push_back(Withdraw{TransferId(i),
                              Error(absl::StatusCode::kCancelled, Reason::kCancelled, "not now")});
      withdrawn.push_back(TransferId(i));
    }
    std::vector<std::pair<size_t, size_t>> frames;  // first, count
    for (size_t first = 0; first < said.size(); first += frames.back().second) {
      frames.emplace_back(first, std::min<size_t>(1 + random() % 3, said.size() - first));
    }
    std::shuffle(frames.begin(), frames.end(), random);
    for (const auto& [first, count] : frames) {
      const std::vector<PeerMessage> messages(said.begin() + first, said.begin() + first + count);
      if (random() % 2 == 0) {
        rig.HearOnStream(first + 1, messages);
      } else {
        rig.HearOnSocket(kTheirs, first + 1, messages);
      }
    }
    ASSERT_EQ(rig.StateOf(kNodeC), "up");
    EXPECT_EQ(rig.offers(), 0u);
    EXPECT_EQ(rig.driver->engine().view().ignored_messages(), 0u);
    std::vector<TransferId> done;
    for (const auto& sent : rig.frames) {
      for (const PeerMessage& message : sent.frame.messages) {
        const Done& answer = std::get<Done>(message);
        EXPECT_THAT(answer.status, Is("CANCELLED/CANCELLED", "not now"));
        done.push_back(answer.transfer);
      }
    }
    EXPECT_EQ(done, withdrawn);
  }
}

TEST(PeerFramesHeard, BeforeOurSideIsUpAreKept) {
  PeerRig rig;
  const auto stream = rig.ProveNodeC();
  // Their hello is under way on the stream while they say this.
  rig.Ask(kTheirs, PeerSocketHello{"node-c", rig.OurIntroduction(*stream).nonce});
  rig.HearOnSocket(kTheirs, 1, {rig.OfferOfNodeC(1, ArenaId(5), 8, "k1")});
  stream->callbacks.on_frame({{}, rig.HelloOf(kNodeC)});
  rig.HearOnSocket(kTheirs, 2, {rig.OfferOfNodeC(2, ArenaId(5), 8, "k2")});
  EXPECT_EQ(rig.driver->engine().view().waiting_offers(), 0u);
  auto page = LinkPage::Create();
  ASSERT_TRUE(page.ok());
  rig.Answer(kNodeC, absl::OkStatus(), PeerSocketWelcome{}, UniqueFd(dup((*page)->memfd())));
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
  EXPECT_EQ(rig.driver->engine().view().waiting_offers(), 2u);
}

TEST(PeerFramesHeard, FromWhoDidNotSayHelloAreRefused) {
  Hearing rig;
  rig.HearOnSocket(91, 1, {rig.SomeOffer(1)});
  EXPECT_EQ(rig.offers(), 0u);
  EXPECT_THAT(rig.responses.back().response.error,
              Is("PERMISSION_DENIED/PROTOCOL_ERROR", "say hello first"));
  EXPECT_THAT(rig.closed, ElementsAre(91u));
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
}

TEST(PeerFramesHeard, OfOnePeerAreNotTakenForAnothers) {
  Hearing rig;
  const auto other = rig.AcceptNodeA();
  rig.Ask(91, PeerSocketHello{"node-a", rig.OurIntroduction(*other).nonce});
  rig.HearOnSocket(91, 2, {rig.SomeOffer(2)});
  rig.HearOnSocket(kTheirs, 1, {rig.SomeOffer(1)});
  EXPECT_EQ(rig.offers(), 1u) << "node-a has yet to say its first";
}

TEST(PeerFramesHeard, TwiceEndTheLink) {
  Hearing rig;
  rig.HearOnSocket(kTheirs, 1, {rig.SomeOffer(1)});
  rig.HearOnStream(1, {rig.SomeOffer(2)});
  EXPECT_EQ(rig.StateOf(kNodeC), "lost");
  ASSERT_TRUE(rig.stream->closed.has_value());
  EXPECT_THAT(*rig.stream->closed,
              Is("UNAVAILABLE/PROTOCOL_ERROR",
                 "the link to node-c: events 1 and following were said twice"));
  EXPECT_EQ(rig.offers(), 0u);
}

TEST(PeerFramesHeard, AreNoSignsOfLife) {
  Hearing rig;
  for (uint64_t second = 1; second <= 5; ++second) {
    EXPECT_EQ(rig.StateOf(kNodeC), "up");
    rig.HearOnSocket(kTheirs, second, {rig.SomeOffer(second)});
    rig.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(rig.StateOf(kNodeC), "lost");
}

TEST(PeerFramesHeard, OnALostLinkAreOfNoOther) {
  Hearing rig;
  rig.Advance(PeerLink::kSilence);
  ASSERT_EQ(rig.StateOf(kNodeC), "lost");
  EXPECT_THAT(rig.closed, ::testing::Contains(kTheirs));
  // The door had read this already.
  rig.HearOnSocket(kTheirs, 1, {rig.SomeOffer(1)});
  EXPECT_EQ(rig.offers(), 0u);
  rig.Advance(absl::Milliseconds(1));
  const auto next = rig.NodeCUp();
  rig.HearOnSocket(kTheirs, 1, {rig.SomeOffer(1)});
  EXPECT_EQ(rig.offers(), 0u);
  rig.Ask(92, PeerSocketHello{"node-c", rig.OurIntroduction(*next).nonce});
  rig.HearOnSocket(92, 1, {rig.SomeOffer(2)});
  EXPECT_EQ(rig.offers(), 1u) << "the next link begins with event 1";
}

// How the last Done of a daemon that stops is heard, though its stream's end comes first.
TEST(PeerFramesHeard, BeforeTheStreamsEndCountThoughTheyAreReadAfterIt) {
  Hearing rig;
  const ArenaId arena = rig.Register(4096);
  const uint64_t send = rig.PostSend(arena, 8, "k");
  rig.stream->callbacks.on_closed(kReset);
  EXPECT_THAT(rig.finished, ElementsAre(kTheirs));
  rig.HearOnSocket(
      kTheirs, 1,
      {Done{MakeTransferId(rig.session().id(), send), absl::OkStatus(), Route::kMapped}});
  EXPECT_EQ(rig.session().endings().transfers_ok(), 1u);
  rig.peers->OnSocketClosed(kTheirs);
  EXPECT_EQ(rig.StateOf(kNodeC), "lost");
  EXPECT_EQ(rig.RowOf(kNodeC).error, "the link to node-c closed: reset");
  EXPECT_FALSE(rig.stream->alive);
  rig.HearOnSocket(kTheirs, 2, {rig.SomeOffer(1)});
  EXPECT_EQ(rig.offers(), 0u);
}

TEST(PeerFramesHeard, ALinkThatEndsIsLostOnceForItsFirstReason) {
  Hearing rig;
  rig.stream->callbacks.on_closed(kReset);
  rig.peers->OnSocketClosed(kOurs);
  EXPECT_THAT(rig.finished, ElementsAre(kTheirs, kTheirs));
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
  rig.peers->OnSocketClosed(kTheirs);
  EXPECT_EQ(rig.RowOf(kNodeC).error, "the link to node-c closed: reset");
  EXPECT_EQ(rig.StateOf(kNodeC), "lost");
}

TEST(PeerFramesHeard, AConnectionOfTheirsThatClosesIsTheirsToMourn) {
  Hearing rig;
  rig.peers->OnSocketClosed(kTheirs);
  EXPECT_EQ(rig.StateOf(kNodeC), "up") << "who has said something there will give up the link";
}

}  // namespace
}  // namespace ferry
