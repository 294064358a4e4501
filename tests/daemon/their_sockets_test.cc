// SPDX-License-Identifier: Apache-2.0
// Our connections to the peer.socks of peers: what is asked there, and what becomes of the answers.
#include "daemon/peer/their_sockets.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "device/host/host_memory.h"
#include "tests/daemon/peer_parts.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr ArenaId kLentArena{77};
constexpr GlobalDeviceId kMapsHere{2};

class TheirSocketsTest : public ::testing::Test {
 protected:
  struct Answered {
    PeerId peer;
    ArenaId arena;
    absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping;
  };
  void Connect(PeerId peer = kNodeC) {
    ASSERT_THAT(sockets_.Connect(peer, "/c/peer.sock", {"node-b", "nonce"}), Is("OK"));
  }
  void Answer(uint64_t sequence, PeerSocketResponse response, uint64_t memfd_bytes) {
    response.sequence = sequence;
    ReceivedFds fds;
    fds.Add(SealedMemfd(memfd_bytes));
    sockets_.OnResponse(kNodeC, "node-c", std::move(response), std::move(fds));
  }
  static PeerSocketResponse Lent(uint64_t bytes) {
    PeerSocketResponse response;
    response.body = ArenaLent{kLentArena, {MemoryKind::kMemfd, bytes}};
    return response;
  }
  void Turn() {
    devices_.Settle();
    control_.RunAll();
  }

  ManualExecutor control_;
  Devices devices_{{2}};
  PlayedSockets played_;
  std::vector<Answered> answers_;
  TheirSockets sockets_{
      control_, devices_.table, played_.hooks,
      [this](PeerId peer, ArenaId arena, absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping) {
        answers_.push_back({peer, arena, std::move(mapping)});
      }};
};

TEST_F(TheirSocketsTest, SayHelloFirst) {
  EXPECT_FALSE(sockets_.IsOpen(kNodeC));
  Connect();
  EXPECT_THAT(played_.connects, ElementsAre(Pair(kNodeC, "/c/peer.sock")));
  ASSERT_THAT(played_.requests, SizeIs(1));
  EXPECT_EQ(std::get<PeerSocketHello>(played_.requests[0].request.body).asked_nonce, "nonce");
  EXPECT_TRUE(sockets_.IsOpen(kNodeC));
  EXPECT_TRUE(sockets_.Is(51, kNodeC));
  EXPECT_FALSE(sockets_.Is(52, kNodeC));
  EXPECT_EQ(sockets_.PeerOf(51), kNodeC);
  EXPECT_EQ(sockets_.PeerOf(52), std::nullopt);
}

TEST_F(TheirSocketsTest, AConnectionThatFailsIsToldOf) {
  played_.connect_error = kReset;
  EXPECT_THAT(sockets_.Connect(kNodeC, "/c/peer.sock", {}), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_FALSE(sockets_.IsOpen(kNodeC));
  played_.connect_error = absl::OkStatus();
  played_.taken = false;
  EXPECT_THAT(sockets_.Connect(kNodeC, "/c/peer.sock", {}),
              Is("UNAVAILABLE/ROUTE_UNAVAILABLE", "no answer at /c/peer.sock"));
  EXPECT_TRUE(sockets_.IsOpen(kNodeC)) << "until it is closed";
  sockets_.Close(kNodeC);
  EXPECT_THAT(played_.closed, ElementsAre(52));
}

TEST_F(TheirSocketsTest, AFrameThatIsNotTakenIsGivenBack) {
  Connect();
  PeerFrame frame{{{}, {ArenaId(5)}}};
  played_.taken = false;
  EXPECT_FALSE(sockets_.Send(kNodeC, frame));
  EXPECT_THAT(frame.arenas_gone, ElementsAre(ArenaId(5)));
  played_.taken = true;
  EXPECT_TRUE(sockets_.Send(kNodeC, frame));
  EXPECT_THAT(std::get<PeerFrame>(played_.requests.back().request.body).arenas_gone,
              ElementsAre(ArenaId(5)));
}

TEST_F(TheirSocketsTest, AnArenaThatIsLentIsMapped) {
  Connect();
  sockets_.Fetch(kNodeC, kLentArena, kMapsHere);
  ASSERT_THAT(played_.requests, SizeIs(2));
  EXPECT_EQ(std::get<GetArena>(played_.requests[1].request.body).arena, kLentArena);
  Answer(played_.requests[1].request.sequence, Lent(4096), 4096);
  EXPECT_THAT(answers_, IsEmpty()) << "a memory thread maps it";
  Turn();
  ASSERT_THAT(answers_, SizeIs(1));
  EXPECT_EQ(answers_[0].peer, kNodeC);
  EXPECT_EQ(answers_[0].arena, kLentArena);
  EXPECT_THAT(answers_[0].mapping, Is("OK"));
  Answer(played_.requests[1].request.sequence, Lent(4096), 4096);
  Turn();
  EXPECT_THAT(answers_, SizeIs(1)) << "nobody asked again";
}

TEST_F(TheirSocketsTest, WhatDoesNotFitIsRefused) {
  Connect();
  for (int i = 0; i < 3; ++i) sockets_.Fetch(kNodeC, kLentArena, kMapsHere);
  Answer(played_.requests[1].request.sequence, Lent(8192), 4096);
  ASSERT_THAT(answers_, SizeIs(1));
  EXPECT_FALSE(answers_[0].mapping.ok());
  EXPECT_THAT(std::string(answers_[0].mapping.status().message()),
              ::testing::HasSubstr("mapping " + kLentArena.ToString() + " of node-c"));
  Answer(played_.requests[2].request.sequence, {}, 4096);
  ASSERT_THAT(answers_, SizeIs(2));
  EXPECT_THAT(answers_[1].mapping, Is("INTERNAL/PROTOCOL_ERROR", "a wrong answer"));
  PeerSocketResponse error;
  error.error = kReset;
  Answer(played_.requests[3].request.sequence, error, 4096);
  ASSERT_THAT(answers_, SizeIs(3));
  EXPECT_THAT(answers_[2].mapping, Is("UNAVAILABLE/PEER_UNREACHABLE", "reset"));
}

TEST_F(TheirSocketsTest, RequestsWaitForAConnectionThatTakesThem) {
  Connect();
  played_.taken = false;
  sockets_.Fetch(kNodeC, kLentArena, kMapsHere);
  sockets_.Fetch(kNodeC, ArenaId(78), kMapsHere);
  EXPECT_EQ(control_.RunAll(), 2u) << "control is told to look when to ask again";
  EXPECT_TRUE(sockets_.Ask(kNodeC));
  played_.taken = true;
  EXPECT_FALSE(sockets_.Ask(kNodeC));
  ASSERT_THAT(played_.requests, SizeIs(3));
  EXPECT_EQ(std::get<GetArena>(played_.requests[1].request.body).arena, kLentArena);
  EXPECT_EQ(std::get<GetArena>(played_.requests[2].request.body).arena, ArenaId(78));
  EXPECT_FALSE(sockets_.Ask(kNodeA)) << "there was never a connection";
}

TEST_F(TheirSocketsTest, WhatIsMappedForALostLinkIsDropped) {
  Connect();
  sockets_.Fetch(kNodeC, kLentArena, kMapsHere);
  Answer(played_.requests[1].request.sequence, Lent(4096), 4096);
  sockets_.Close(kNodeC);
  EXPECT_THAT(played_.closed, ElementsAre(51));
  Connect();
  Turn();
  EXPECT_THAT(answers_, IsEmpty());
  EXPECT_TRUE(sockets_.Is(52, kNodeC));
}

TEST_F(TheirSocketsTest, AnArenaMayComeAfterTheConnectionsEnd) {
  Connect();
  sockets_.Fetch(kNodeC, kLentArena, kMapsHere);
  Answer(played_.requests[1].request.sequence, Lent(4096), 4096);
  sockets_.OnClosed(kNodeC);
  EXPECT_FALSE(sockets_.IsOpen(kNodeC));
  sockets_.Fetch(kNodeC, ArenaId(78), kMapsHere);
  EXPECT_TRUE(sockets_.Ask(kNodeC));
  Turn();
  EXPECT_THAT(answers_, SizeIs(1)) << "the link is not lost yet";
  EXPECT_EQ(sockets_.Take(kNodeC), std::nullopt);
  sockets_.Close(kNodeC);
  EXPECT_THAT(played_.closed, IsEmpty());
  EXPECT_FALSE(sockets_.Ask(kNodeC)) << "requests are forgotten";
}

TEST_F(TheirSocketsTest, AConnectionThatIsTakenIsTheCallers) {
  Connect();
  EXPECT_EQ(sockets_.Take(kNodeC), 51u);
  EXPECT_EQ(sockets_.PeerOf(51), std::nullopt);
  sockets_.Close(kNodeC);
  EXPECT_THAT(played_.closed, IsEmpty());
}

}  // namespace
}  // namespace ferry::testing
