// SPDX-License-Identifier: Apache-2.0
// Our peer.sock: who asks there must be of a link, and gets what is lent to it.
#include "daemon/peer/own_socket.h"

#include <memory>
#include <variant>

#include "tests/daemon/peer_parts.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr Credentials kSocketAsker{200, 1000, 1000};

class OwnSocketTest : public ::testing::Test {
 protected:
  void Welcome(Door::ConnectionId connection, PeerId peer) {
    socket_.Welcome(connection, peer, 1, {}, *page_);
  }
  PeerRig rig_;  // for its sessions
  const std::unique_ptr<LinkPage> page_ = *LinkPage::Create();
  PlayedSockets played_;
  LentArenas lent_;
  Partings partings_{rig_.control, played_.hooks.close};
  OwnSocket socket_{played_.hooks, *rig_.sessions, lent_, partings_};
};

TEST_F(OwnSocketTest, AConnectionIsOfThePeerThatItIsWelcomedAs) {
  EXPECT_EQ(socket_.PeerOf(3), std::nullopt);
  Welcome(3, kNodeC);
  EXPECT_EQ(socket_.PeerOf(3), kNodeC);
  EXPECT_TRUE(socket_.Has(kNodeC));
  EXPECT_FALSE(socket_.Has(kNodeA));
  ASSERT_THAT(played_.responses, SizeIs(1));
  EXPECT_THAT(played_.responses[0].response.error, Is("OK"));
  EXPECT_THAT(played_.responses[0].fds, SizeIs(3)) << "the page, and both its doorbells";
  Welcome(4, kNodeC);
  socket_.Forget(3);
  socket_.Forget(4);
  EXPECT_FALSE(socket_.Has(kNodeC));
}

TEST_F(OwnSocketTest, ARefusalIsAnsweredAndClosesUnlessTheLinkIsParting) {
  Welcome(3, kNodeC);
  socket_.Refuse(3, kSocketAsker, 9, absl::PermissionDeniedError("no"));
  EXPECT_EQ(played_.responses.back().response.sequence, 9u);
  EXPECT_THAT(played_.responses.back().response.error, Not(Is("OK")));
  EXPECT_THAT(played_.closed, ElementsAre(3));
  EXPECT_EQ(socket_.PeerOf(3), std::nullopt);

  partings_.Add(1, nullptr, {4});
  socket_.Refuse(4, kSocketAsker, 10, absl::PermissionDeniedError("no"));
  EXPECT_EQ(played_.responses.back().response.sequence, 9u) << "nothing is said";
  EXPECT_THAT(played_.closed, ElementsAre(3));
}

TEST_F(OwnSocketTest, OnlyWhatIsLentIsShared) {
  const ArenaId arena = rig_.Register(4096);
  Welcome(3, kNodeC);
  socket_.Share(3, kNodeC, "node-c", 2, arena);
  EXPECT_THAT(played_.responses.back().response.error,
              Is("NOT_FOUND/ARENA_NOT_FOUND", "was not offered to node-c"));
  lent_.Lend(kNodeA, Layout{{arena, 0, 16}});
  socket_.Share(3, kNodeC, "node-c", 3, arena);
  EXPECT_THAT(played_.responses.back().response.error, Is("NOT_FOUND/ARENA_NOT_FOUND"));
  lent_.Lend(kNodeC, Layout{{arena, 0, 16}});
  socket_.Share(3, kNodeC, "node-c", 4, arena);
  const SocketResponse& shared = played_.responses.back();
  EXPECT_THAT(shared.response.error, Is("OK"));
  EXPECT_EQ(shared.response.sequence, 4u);
  EXPECT_EQ(std::get<ArenaLent>(shared.response.body).arena, arena);
  EXPECT_EQ(std::get<ArenaLent>(shared.response.body).memory.bytes, 4096u);
  EXPECT_THAT(shared.fds, SizeIs(1));
  lent_.Lend(kNodeC, Layout{{ArenaId(999), 0, 16}});
  socket_.Share(3, kNodeC, "node-c", 5, ArenaId(999));
  EXPECT_THAT(played_.responses.back().response.error, Is("NOT_FOUND/ARENA_NOT_FOUND"));
}

TEST_F(OwnSocketTest, ConnectionsGoWithTheLink) {
  for (const Door::ConnectionId connection : {3, 4}) Welcome(connection, kNodeC);
  Welcome(5, kNodeA);
  socket_.Finish(kNodeA);
  EXPECT_THAT(played_.finished, ElementsAre(5));
  EXPECT_TRUE(socket_.Has(kNodeA)) << "until it has ended";
  EXPECT_THAT(socket_.Take(kNodeC), UnorderedElementsAre(3, 4));
  EXPECT_THAT(socket_.Take(kNodeC), IsEmpty());
  EXPECT_THAT(played_.closed, IsEmpty());
  socket_.Close(kNodeA);
  EXPECT_THAT(played_.closed, ElementsAre(5));
}

}  // namespace
}  // namespace ferry::testing
