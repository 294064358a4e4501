// SPDX-License-Identifier: Apache-2.0
// Who may be at the other end of a link, by what he says of himself.
#include "daemon/peer/introduction.h"

#include <unistd.h>

#include "tests/daemon/peer_parts.h"

namespace ferry::testing {
namespace {

PeerIntroduction FromNodeA() {
  PeerIntroduction introduction = OwnNode("node-a").Introduce();
  return introduction;
}

TEST(Introduction, IsWhatTheDaemonIsWithANonceOfItsOwn) {
  const OwnDaemon own = OwnNode("node-b");
  const PeerIntroduction first = own.Introduce(), second = own.Introduce();
  EXPECT_EQ(first.node, "node-b");
  EXPECT_EQ(first.incarnation, Incarnation(42));
  EXPECT_EQ(first.boot_id, "boot");
  EXPECT_EQ(first.uid, geteuid());
  EXPECT_EQ(first.peer_socket, "/node-b/peer.sock");
  EXPECT_EQ(first.nonce.size(), 32u);
  EXPECT_NE(first.nonce, second.nonce);
}

TEST(Introduction, MustBeOfTheConfiguredNameAndAKnownProtocol) {
  const OwnDaemon own = OwnNode("node-b");
  const PeerConfig peer = PeerNode("node-a");
  PeerIntroduction said = FromNodeA();
  EXPECT_THAT(CheckIntroduction(own, peer, said), Is("OK"));
  said.node = "node-x";
  EXPECT_THAT(CheckIntroduction(own, peer, said),
              Is("FAILED_PRECONDITION/CONFIG_INVALID",
                 "link between node-b and node-a: the daemon at node-a:7000 is 'node-x'"));
  said = FromNodeA();
  said.protocol.oldest = said.protocol.newest = kPeerProtocol.newest + 1;
  EXPECT_THAT(CheckIntroduction(own, peer, said),
              Is("FAILED_PRECONDITION/PROTOCOL_VERSION", "update ferryd at node-b"));
}

TEST(Introduction, NeedsOneHostAndATrustedUidWithoutASecret) {
  const PeerConfig peer = PeerNode("node-a");
  PeerIntroduction elsewhere = FromNodeA(), stranger = FromNodeA();
  elsewhere.boot_id = "another boot";
  stranger.uid = geteuid() + 1;
  EXPECT_THAT(CheckIntroduction(OwnNode("node-b"), peer, elsewhere), Is("OK"));
  EXPECT_THAT(CheckIntroduction(OwnNode("node-b"), peer, stranger), Is("OK"));

  OwnDaemon own = OwnNode("node-b", "");
  EXPECT_THAT(CheckIntroduction(own, peer, FromNodeA()), Is("OK"));
  EXPECT_THAT(
      CheckIntroduction(own, peer, elsewhere),
      Is("PERMISSION_DENIED/NOT_ALLOWED",
         "without a shared secret only daemons of one host find each other; make a secret"));
  EXPECT_THAT(CheckIntroduction(own, peer, stranger),
              Is("PERMISSION_DENIED/NOT_ALLOWED", "which peer.uids of node-b does not list"));
  EXPECT_FALSE(own.TrustsUid(geteuid() + 1));
  own.trusted_uids = {geteuid() + 1};
  EXPECT_TRUE(own.TrustsUid(geteuid() + 1));
  EXPECT_THAT(CheckIntroduction(own, peer, stranger), Is("OK"));
}

TEST(Introduction, TheSmallerNameDials) {
  const OwnDaemon own = OwnNode("node-b");
  const PeerConfig smaller = PeerNode("node-a"), larger = PeerNode("node-c");
  EXPECT_THAT(CheckRole(own, &larger, "node-c", /*dials=*/true), Is("OK"));
  EXPECT_THAT(CheckRole(own, &smaller, "node-a", /*dials=*/false), Is("OK"));
  EXPECT_THAT(CheckRole(own, &smaller, "node-a", /*dials=*/true),
              Is("PERMISSION_DENIED/NOT_ALLOWED", "it is the caller that dials"));
  EXPECT_THAT(CheckRole(own, &larger, "node-c", /*dials=*/false),
              Is("PERMISSION_DENIED/NOT_ALLOWED", "it is node-b that dials"));
  EXPECT_THAT(CheckRole(own, nullptr, "node-\x01", /*dials=*/true),
              Is("PERMISSION_DENIED/NOT_ALLOWED", "is not among membership.nodes of node-b"));
}

TEST(Introduction, HellosNameTheDevicesOfTheMembership) {
  const PeerConfig peer = PeerNode("node-a", {GlobalDeviceId(0), GlobalDeviceId(1)});
  PeerHello hello;
  hello.devices = {{GlobalDeviceId(1), {}}, {GlobalDeviceId(0), {}}};
  EXPECT_THAT(CheckDevices(OwnNode("node-b"), peer, hello), Is("OK")) << "in any order";
  hello.devices.pop_back();
  EXPECT_THAT(CheckDevices(OwnNode("node-b"), peer, hello),
              Is("FAILED_PRECONDITION/CONFIG_INVALID",
                 "node-a has the global device ids 1, and by membership.nodes of node-b it would "
                 "have 0, 1"));
  hello.devices.clear();
  EXPECT_THAT(CheckDevices(OwnNode("node-b"), peer, hello),
              Is("FAILED_PRECONDITION/CONFIG_INVALID", "ids none,"));
}

}  // namespace
}  // namespace ferry::testing
