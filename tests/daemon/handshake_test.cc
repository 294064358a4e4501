// SPDX-License-Identifier: Apache-2.0
// Both ends prove to each other who they are, and then have one secret.
#include "daemon/peer/handshake.h"

#include <string>

#include "daemon/peer/peer_proof.h"
#include "tests/daemon/peer_parts.h"

namespace ferry::testing {
namespace {

// node-a dials node-b.
class HandshakeTest : public ::testing::Test {
 protected:
  // node-b as node-a's caller sees it: what node-b answers to node-a's introduction.
  PeerFrame Answer(const PeerIntroduction& dialled) {
    caller_.theirs = dialled;
    caller_.ours = b_.Introduce();
    PeerFrame frame;
    frame.introduction = caller_.ours;
    if (!b_.secret.empty()) {
      frame.proof = PeerProof(b_.secret, PeerSide::kAcceptor, {caller_.theirs, caller_.ours});
    }
    return frame;
  }
  const PeerConfig node_b_ = PeerNode("node-b");
  OwnDaemon a_ = OwnNode("node-a"), b_ = OwnNode("node-b");
  Callers::Caller caller_;
  Handshake of_a_{a_}, of_b_{b_};
};

TEST_F(HandshakeTest, WithASecretBothProveItOnTheStream) {
  const PeerFrame answer = Answer(of_a_.Dial(/*in_reverse=*/false, /*visiting=*/false));
  EXPECT_TRUE(of_a_.we_dialled());
  EXPECT_FALSE(of_a_.is_introduced());
  ASSERT_THAT(of_a_.OnIntroduction(node_b_, answer), Is("OK"));
  EXPECT_TRUE(of_a_.is_introduced());
  EXPECT_FALSE(of_a_.is_proven());
  EXPECT_EQ(of_a_.secret(), "");
  EXPECT_EQ(of_a_.Proof(),
            PeerProof(b_.secret, PeerSide::kDialler, {caller_.theirs, caller_.ours}));
  of_a_.Prove(a_.secret);
  of_b_.Accept(caller_, b_.secret);
  EXPECT_TRUE(of_a_.is_proven());
  EXPECT_TRUE(of_b_.is_proven());
  EXPECT_FALSE(of_b_.we_dialled());
  EXPECT_EQ(of_a_.secret().size(), kPeerSecretBytes);
  EXPECT_EQ(of_a_.secret(), of_b_.secret());
  EXPECT_EQ(of_b_.theirs().node, "node-a");
}

TEST_F(HandshakeTest, AWrongProofIsRefused) {
  b_.secret = "another";
  const PeerFrame answer = Answer(of_a_.Dial(false, false));
  EXPECT_THAT(of_a_.OnIntroduction(node_b_, answer),
              Is("PERMISSION_DENIED/NOT_ALLOWED",
                 "link between node-a and node-b: the daemon at node-b:7000 did not prove"));
  EXPECT_FALSE(of_a_.is_proven());
}

TEST_F(HandshakeTest, AWrongIntroductionIsRefused) {
  PeerFrame answer = Answer(of_a_.Dial(false, false));
  answer.introduction->node = "node-x";
  EXPECT_THAT(of_a_.OnIntroduction(node_b_, answer), Is("FAILED_PRECONDITION/CONFIG_INVALID"));
  EXPECT_FALSE(of_a_.is_introduced());
}

TEST_F(HandshakeTest, WithoutASecretBothGiveShares) {
  a_.secret = b_.secret = "";
  ASSERT_THAT(of_a_.OnIntroduction(node_b_, Answer(of_a_.Dial(false, false))), Is("OK"));
  const PeerSocketHello hello = of_a_.SocketHello();
  EXPECT_EQ(hello.node, "node-a");
  EXPECT_EQ(hello.asked_nonce, caller_.ours.nonce);
  EXPECT_EQ(hello.random.size(), kPeerSecretBytes);
  EXPECT_EQ(hello.proof,
            PeerProof(hello.random, PeerSide::kDialler, {caller_.theirs, caller_.ours}));
  const PeerSocketWelcome welcome{std::string(kPeerSecretBytes, 'w')};
  of_a_.OnWelcome(welcome);
  of_b_.Accept(caller_, hello.random + welcome.random);
  EXPECT_EQ(of_a_.secret(), of_b_.secret());
  const PeerSocketHello later = of_a_.SocketHello();
  EXPECT_EQ(later.random, "") << "the share is not said again";
  EXPECT_EQ(later.proof, "");
}

TEST_F(HandshakeTest, EachStreamBeginsAnew) {
  const PeerIntroduction first = of_a_.Dial(/*in_reverse=*/true, /*visiting=*/true);
  EXPECT_TRUE(first.in_reverse);
  EXPECT_TRUE(first.visiting);
  ASSERT_THAT(of_a_.OnIntroduction(node_b_, Answer(first)), Is("OK"));
  of_a_.Prove(a_.secret);
  const std::string secret = of_a_.secret();
  of_a_.End();
  EXPECT_FALSE(of_a_.is_proven());
  EXPECT_EQ(of_a_.secret(), "");
  EXPECT_TRUE(of_a_.we_dialled()) << "the last one";
  const PeerIntroduction second = of_a_.Dial(false, false);
  EXPECT_FALSE(second.in_reverse);
  EXPECT_FALSE(of_a_.is_introduced());
  EXPECT_NE(second.nonce, first.nonce);
  ASSERT_THAT(of_a_.OnIntroduction(node_b_, Answer(second)), Is("OK"));
  of_a_.Prove(a_.secret);
  EXPECT_NE(of_a_.secret(), secret);
}

}  // namespace
}  // namespace ferry::testing
