// SPDX-License-Identifier: Apache-2.0
// What daemons of one host hand each other over peer.sock, and what they do not.
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/peer/peer_link.h"
#include "daemon/peer/their_sockets.h"
#include "device/memory.h"
#include "tests/daemon/peer_rig.h"

namespace ferry {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::Is;
using ::testing::IsEmpty;
using testing::kNodeA;
using testing::kNodeC;
using testing::kReset;
using testing::PeerRig;
using testing::SealedMemfd;
using ::testing::SizeIs;
using testing::SocketResponse;
using testing::StreamRecord;

constexpr Door::ConnectionId kAsker = 90;

// A memfd as node-c would hand it over, beginning with `text`.
UniqueFd MemoryWith(const std::string& text) {
  UniqueFd fd = SealedMemfd(4096);
  EXPECT_EQ(pwrite(fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return fd;
}

TEST(PeerSocketHello, WithTheLinksSecretGetsTheLinksPage) {
  PeerRig rig;
  const auto stream = rig.NodeCUp();
  const SocketResponse& answer =
      rig.Ask(kAsker, PeerSocketHello{"node-c", rig.OurIntroduction(*stream).nonce});
  EXPECT_THAT(answer.response.error, Is("OK"));
  EXPECT_TRUE(std::holds_alternative<PeerSocketWelcome>(answer.response.body));
  EXPECT_THAT(answer.fds, SizeIs(3));
  EXPECT_THAT(rig.closed, IsEmpty());
}

TEST(PeerSocketHello, APageWithSlotsHasItsDoorbellsWithIt) {
  PeerRig rig;
  const auto stream = rig.NodeCUp();
  EXPECT_EQ(rig.peers->PageWithSlots(kNodeC, false), nullptr) << "node-c gave its page alone";
  EXPECT_NE(rig.peers->PageWithSlots(kNodeC, true), nullptr);
  EXPECT_THAT(rig.Ask(kAsker, PeerSocketHello{"node-c", rig.OurIntroduction(*stream).nonce}).fds,
              SizeIs(3));
}

TEST(PeerSocketHello, MayComeBeforeTheOthersHelloOnTheLink) {
  PeerRig rig;
  const auto stream = rig.ProveNodeC();
  EXPECT_THAT(rig.Ask(kAsker, PeerSocketHello{"node-c", rig.OurIntroduction(*stream).nonce}).fds,
              SizeIs(3));
}

void ExpectRefused(PeerRig& rig, const std::string& node, const std::string& secret,
                   uint32_t uid = geteuid()) {
  rig.closed.clear();
  const SocketResponse& answer = rig.Ask(kAsker, PeerSocketHello{node, secret}, uid);
  EXPECT_THAT(answer.response.error, Is("PERMISSION_DENIED/NOT_ALLOWED",
                                        "the caller is not the daemon at the other end of a link"));
  EXPECT_THAT(answer.fds, IsEmpty());
  EXPECT_THAT(rig.closed, ElementsAre(kAsker));
}

TEST(PeerSocketHello, OfAnybodyElseIsRefused) {
  PeerRig rig;
  ExpectRefused(rig, "node-c", "");  // no link, no secret
  const auto stream = rig.NodeCUp();
  const std::string secret = rig.OurIntroduction(*stream).nonce;
  ExpectRefused(rig, "node-c", "");
  ExpectRefused(rig, "node-c", secret.substr(0, 31));
  ExpectRefused(rig, "node-c", rig.HelloOf(kNodeC).nonce);  // theirs is for asking them
  ExpectRefused(rig, "node-a", secret);
  ExpectRefused(rig, "node-b", secret);
  ExpectRefused(rig, "node-x", secret);
  ExpectRefused(rig, "", secret);
  ExpectRefused(rig, "node-c", secret, geteuid() + 1);
  EXPECT_THAT(rig.Ask(kAsker, PeerSocketHello{"node-c", secret}).response.error, Is("OK"));
}

TEST(PeerSocketHello, WithTheSecretOfALostLinkIsRefused) {
  PeerRig rig;
  const auto stream = rig.NodeCUp();
  const std::string secret = rig.OurIntroduction(*stream).nonce;
  stream->callbacks.on_closed(kReset);
  ExpectRefused(rig, "node-c", secret);
  rig.NodeCUp();
  ExpectRefused(rig, "node-c", secret);
}

TEST(PeerSocketHello, OfATrustedUserIsTaken) {
  PeerRig rig({geteuid() + 1});
  const auto stream = rig.NodeCUp();
  const std::string secret = rig.OurIntroduction(*stream).nonce;
  EXPECT_THAT(rig.Ask(kAsker, PeerSocketHello{"node-c", secret}, geteuid() + 1).response.error,
              Is("OK"));
  ExpectRefused(rig, "node-c", secret, geteuid() + 2);
}

// node-c has a link to us, is known on our peer.sock, and was offered `offered`.
struct Granting : PeerRig {
  explicit Granting(const PeerHello& hello = HelloOf(kNodeC)) {
    offered = Register(4096);
    kept = Register(8192);
    stream = NodeCUp(hello);
    Ask(kAsker, PeerSocketHello{"node-c", OurIntroduction(*stream).nonce});
    PostSend(offered, 8, "k");
  }
  ArenaId offered, kept;
  std::shared_ptr<StreamRecord> stream;
};

TEST(PeerSocketLends, AnArenaThatWasOfferedIsGiven) {
  Granting rig;
  const SocketResponse& answer = rig.Ask(kAsker, GetArena{rig.offered});
  EXPECT_THAT(answer.response.error, Is("OK"));
  const auto& lent = std::get<ArenaLent>(answer.response.body);
  EXPECT_EQ(lent.arena, rig.offered);
  EXPECT_EQ(lent.memory.bytes, 4096u);
  ASSERT_THAT(answer.fds, SizeIs(1));
  memcpy(rig.sessions->FindArena(rig.offered)->mapping->data(), "ferry", 5);
  char seen[5];
  ASSERT_EQ(pread(answer.fds[0].get(), seen, 5, 0), 5);
  EXPECT_EQ(memcmp(seen, "ferry", 5), 0);
}

// Of a GPU, in several allocations.
class Segments : public DeviceMemory {
 public:
  explicit Segments(int fd) : fds_(3, fd) {}
  MemoryShare share() const override { return {MemoryKind::kCudaVmm, 3, {1, 1, 1}}; }
  std::vector<int> fds() const override { return fds_; }

 private:
  const std::vector<int> fds_;
};

TEST(PeerSocketLends, AnArenaOfManyAllocationsIsGivenWhole) {
  const UniqueFd fd(eventfd(0, EFD_CLOEXEC));
  Granting rig;
  rig.sessions->FindArena(rig.offered)->mapping = std::make_unique<Segments>(fd.get());
  const SocketResponse& answer = rig.Ask(kAsker, GetArena{rig.offered});
  EXPECT_THAT(answer.response.error, Is("OK"));
  EXPECT_THAT(answer.fds, SizeIs(3));
}

TEST(PeerSocketLends, AnArenaThatWasNotOfferedIsNotGiven) {
  Granting rig;
  for (const ArenaId arena : {rig.kept, ArenaId(999), ArenaId(0)}) {
    const SocketResponse& answer = rig.Ask(kAsker, GetArena{arena});
    EXPECT_THAT(answer.response.error,
                Is("NOT_FOUND/ARENA_NOT_FOUND", "was not offered to node-c"));
    EXPECT_THAT(answer.fds, IsEmpty());
  }
  EXPECT_THAT(rig.closed, IsEmpty());  // a mistake, not a crime
}

TEST(PeerSocketLends, WhatOnePeerWasOfferedTheOtherDoesNotGet) {
  Granting rig;
  const auto other = rig.AcceptNodeA();
  rig.Ask(91, PeerSocketHello{"node-a", rig.OurIntroduction(*other).nonce});
  EXPECT_THAT(rig.Ask(91, GetArena{rig.offered}).response.error,
              Is("NOT_FOUND/ARENA_NOT_FOUND", "was not offered to node-a"));
}

TEST(PeerSocketLends, APeerOfAnotherHostIsGivenNothing) {
  PeerRig rig;
  const ArenaId arena = rig.Register(4096);
  const auto stream = rig.NodeCUpElsewhere();
  rig.PostSend(arena, 8, "k");
  rig.Ask(kAsker, PeerSocketHello{"node-c", rig.OurIntroduction(*stream).nonce});
  EXPECT_THAT(rig.Ask(kAsker, GetArena{arena}).response.error, Is("NOT_FOUND/ARENA_NOT_FOUND"));
}

TEST(PeerSocketLends, WhoDidNotSayHelloIsGivenNothing) {
  Granting rig;
  EXPECT_THAT(rig.Ask(91, GetArena{rig.offered}).response.error,
              Is("PERMISSION_DENIED/PROTOCOL_ERROR", "say hello first"));
  EXPECT_THAT(rig.closed, ElementsAre(91u));
}

TEST(PeerSocketLends, AReleasedArenaIsGoneAndThePeerIsTold) {
  Granting rig;
  rig.driver->Cancel(rig.session(), {1},
                     Error(absl::StatusCode::kCancelled, Reason::kCancelled, "x"));
  rig.Hear(rig.stream, {Done{MakeTransferId(rig.session().id(), 1),
                             Error(absl::StatusCode::kCancelled, Reason::kCancelled, "x"),
                             {}}});
  rig.sessions->OnCommand(testing::kClient, testing::kClientIs,
                          {9, AttachReleaseArena{rig.offered}}, {});
  ASSERT_EQ(rig.sessions->FindArena(rig.offered), nullptr);
  EXPECT_THAT(rig.frames.back().frame.arenas_gone, ElementsAre(rig.offered));
  EXPECT_THAT(rig.Ask(kAsker, GetArena{rig.offered}).response.error,
              Is("NOT_FOUND/ARENA_NOT_FOUND"));
  const size_t before = rig.frames.size();
  rig.sessions->OnCommand(testing::kClient, testing::kClientIs, {10, AttachReleaseArena{rig.kept}},
                          {});
  EXPECT_THAT(rig.frames, SizeIs(before));  // of what was not offered nobody is told
}

TEST(PeerSocketLends, WithTheLinkTheyAreLost) {
  Granting rig;
  rig.Advance(PeerLink::kSilence);
  EXPECT_THAT(rig.closed, Contains(kAsker));
  EXPECT_THAT(rig.Ask(kAsker, GetArena{rig.offered}).response.error,
              Is("PERMISSION_DENIED/PROTOCOL_ERROR"));
  // Nor does a new link of the same peer bring them back.
  rig.Advance(absl::Milliseconds(1));
  const auto again = rig.NodeCUp();
  rig.Ask(92, PeerSocketHello{"node-c", rig.OurIntroduction(*again).nonce});
  EXPECT_THAT(rig.Ask(92, GetArena{rig.offered}).response.error, Is("NOT_FOUND/ARENA_NOT_FOUND"));
}

TEST(PeerSocketLends, AConnectionThatClosedIsForgotten) {
  Granting rig;
  rig.peers->OnSocketClosed(kAsker);
  EXPECT_THAT(rig.Ask(kAsker, GetArena{rig.offered}).response.error,
              Is("PERMISSION_DENIED/PROTOCOL_ERROR"));
}

// A receive of 8 bytes from node-c's arena 7, matched: it waits for the arena.
struct Fetching : PeerRig {
  Fetching() {
    arena = Register(4096);
    stream = NodeCUp();
    receive = PostReceive(arena, 8, "k");
    Hear(stream, {OfferOfNodeC(1, ArenaId(7), 8, "k")});
    EXPECT_EQ(std::get<GetArena>(requests.back().request.body).arena, ArenaId(7));
  }
  std::string Received() { return std::string(reinterpret_cast<char*>(mapping()), 8); }
  std::byte* mapping() { return sessions->FindArena(arena)->mapping->data(); }
  absl::Status Failure(uint64_t id) {
    return session().endings().FindFailure(id).value_or(absl::OkStatus());
  }

  ArenaId arena;
  uint64_t receive = 0;
  std::shared_ptr<StreamRecord> stream;
};

TEST(PeerSocketFetch, TheArenaIsMappedAndTheBytesAreCopied) {
  Fetching rig;
  EXPECT_EQ(rig.driver->engine().view().in_flight(), 1u);
  rig.Answer(kNodeC, absl::OkStatus(), ArenaLent{ArenaId(7), {MemoryKind::kMemfd, 4096}},
             MemoryWith("12345678"));
  rig.Turn();
  EXPECT_EQ(rig.driver->engine().view().in_flight(), 0u);
  EXPECT_EQ(rig.session().endings().transfers_ok(), 1u);
  EXPECT_EQ(rig.Received(), "12345678");
  // It stays mapped: the next one is not asked for.
  const size_t before = rig.requests.size();
  rig.PostReceive(rig.arena, 8, "k2");
  rig.Hear(rig.stream, {rig.OfferOfNodeC(2, ArenaId(7), 8, "k2")});
  EXPECT_EQ(rig.session().endings().transfers_ok(), 2u);
  EXPECT_THAT(rig.requests, SizeIs(before));
  // Until its owner takes it back.
  rig.Hear(rig.stream, {}, {ArenaId(7)});
  rig.PostReceive(rig.arena, 8, "k3");
  rig.Hear(rig.stream, {rig.OfferOfNodeC(3, ArenaId(7), 8, "k3")});
  EXPECT_THAT(rig.requests, SizeIs(before + 1));
}

TEST(PeerSocketFetch, BytesOfAnOwnerThatGaveUpTheLinkAreNotBelieved) {
  Fetching rig;
  rig.page_of_node_c->Revoke();
  rig.Answer(kNodeC, absl::OkStatus(), ArenaLent{ArenaId(7), {MemoryKind::kMemfd, 4096}},
             MemoryWith("12345678"));
  rig.Turn();
  EXPECT_EQ(rig.session().endings().transfers_ok(), 0u);
  EXPECT_THAT(rig.Failure(rig.receive),
              Is("UNAVAILABLE/PEER_UNREACHABLE", "gave up the link during the copy"));
}

TEST(PeerSocketFetch, WithoutTheArenaThereIsNoRoute) {
  const auto failure = [](auto answer) {
    Fetching rig;
    answer(rig);
    rig.Turn();
    EXPECT_EQ(rig.driver->engine().view().in_flight(), 0u);
    EXPECT_EQ(rig.session().endings().transfers_ok(), 0u);
    return std::string(rig.Failure(rig.receive).message());
  };
  EXPECT_THAT(failure([](Fetching& rig) {
                rig.Answer(
                    kNodeC,
                    Error(absl::StatusCode::kNotFound, Reason::kArenaNotFound, "never heard"),
                    PeerSocketWelcome{});
              }),
              ::testing::HasSubstr("never heard"));
  EXPECT_THAT(
      failure([](Fetching& rig) {
        rig.Answer(kNodeC, absl::OkStatus(), ArenaLent{ArenaId(7), {MemoryKind::kMemfd, 4096}});
      }),
      ::testing::HasSubstr("must come with a memfd, 0 did"));
  EXPECT_THAT(failure([](Fetching& rig) {
                rig.Answer(kNodeC, absl::OkStatus(),
                           ArenaLent{ArenaId(7), {MemoryKind::kMemfd, 8192}}, SealedMemfd(4096));
              }),
              ::testing::HasSubstr("map arena 7 of node-c"));
  EXPECT_THAT(
      failure([](Fetching& rig) { rig.peers->OnSocketClosed(rig.requests.back().connection); }),
      ::testing::HasSubstr("/node-c/peer.sock of node-c closed"));
}

// The connection is full, or has ended without having been told: neither is a route's failure.
TEST(PeerSocketFetch, WhatIsNotTakenIsAskedAgain) {
  PeerRig rig;
  const ArenaId arena = rig.Register(4096);
  const auto stream = rig.NodeCUp();
  const auto post = [&](uint64_t number, const std::string& key) {
    const uint64_t receive = rig.PostReceive(arena, 8, key);
    rig.requests_taken = false;
    rig.Hear(stream, {rig.OfferOfNodeC(number, ArenaId(6 + number), 8, key)});
    EXPECT_FALSE(rig.session().endings().FindFailure(receive).has_value());
    return receive;
  };
  post(1, "k");
  const size_t before = rig.requests.size();
  rig.Advance(TheirSockets::kAskAgain);
  EXPECT_THAT(rig.requests, SizeIs(before));
  rig.requests_taken = true;
  rig.Advance(TheirSockets::kAskAgain);
  ASSERT_THAT(rig.requests, SizeIs(before + 1));
  rig.Answer(kNodeC, absl::OkStatus(), ArenaLent{ArenaId(7), {MemoryKind::kMemfd, 4096}},
             MemoryWith("12345678"));
  rig.Turn();
  EXPECT_EQ(rig.session().endings().transfers_ok(), 1u);

  const uint64_t lost = post(2, "k2");
  rig.peers->OnSocketClosed(rig.requests.back().connection);
  rig.Turn();
  ASSERT_TRUE(rig.session().endings().FindFailure(lost).has_value());
  EXPECT_THAT(*rig.session().endings().FindFailure(lost), Is("UNAVAILABLE/PEER_UNREACHABLE"));
}

TEST(PeerSocketFetch, AnswersOfNoQuestionOrOfAnotherConnectionMeanNothing) {
  Fetching rig;
  const auto& last = rig.requests.back();
  const auto answer = [&](Door::ConnectionId connection, uint64_t sequence) {
    std::vector<UniqueFd> fds;
    fds.push_back(SealedMemfd(4096));
    rig.peers->OnSocketResponse(
        kNodeC, connection,
        {sequence, absl::OkStatus(), ArenaLent{ArenaId(7), {MemoryKind::kMemfd, 4096}}},
        std::move(fds));
    rig.Turn();
  };
  answer(last.connection, last.request.sequence + 1);
  answer(last.connection, 0);
  answer(last.connection + 1, last.request.sequence);
  EXPECT_EQ(rig.driver->engine().view().in_flight(), 1u);
  answer(last.connection, last.request.sequence);
  EXPECT_EQ(rig.session().endings().transfers_ok(), 1u);
}

TEST(PeerSocketFetch, ALinkThatIsLostMeanwhileEndsTheTransfer) {
  Fetching rig;
  rig.stream->callbacks.on_closed(kReset);
  rig.driver->AfterTasks();
  EXPECT_EQ(rig.driver->engine().view().in_flight(), 0u);
  EXPECT_THAT(rig.Failure(rig.receive), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  rig.Answer(kNodeC, absl::OkStatus(), ArenaLent{ArenaId(7), {MemoryKind::kMemfd, 4096}},
             SealedMemfd(4096));
  rig.Turn();  // too late for anything
  EXPECT_EQ(rig.session().endings().transfers_ok(), 0u);
}

// A peer that restarts begins its arena ids anew.
TEST(PeerSocketFetch, AFailureOfTheLinkBeforeIsNotTakenForOneOfThisLink) {
  Fetching rig;
  rig.Answer(kNodeC, absl::OkStatus(), ArenaLent{ArenaId(7), {MemoryKind::kMemfd, 8192}},
             SealedMemfd(4096));
  rig.devices.Settle();  // it could not be mapped; control has not heard of it yet
  rig.stream->callbacks.on_closed(kReset);
  rig.driver->AfterTasks();
  rig.stream = rig.NodeCUp();
  const uint64_t receive = rig.PostReceive(rig.arena, 8, "k2");
  rig.stream->callbacks.on_frame({{{rig.OfferOfNodeC(1, ArenaId(7), 8, "k2")}, {}, 1}});
  rig.driver->AfterTasks();
  ASSERT_EQ(std::get<GetArena>(rig.requests.back().request.body).arena, ArenaId(7));
  rig.Turn();
  EXPECT_THAT(rig.Failure(receive), Is("OK"));
  rig.Answer(kNodeC, absl::OkStatus(), ArenaLent{ArenaId(7), {MemoryKind::kMemfd, 4096}},
             MemoryWith("abcdefgh"));
  rig.Turn();
  EXPECT_EQ(rig.session().endings().transfers_ok(), 1u);
  EXPECT_EQ(rig.Received(), "abcdefgh");
}

}  // namespace
}  // namespace ferry
