// SPDX-License-Identifier: Apache-2.0
// A caller proves who it is, or it is refused.
#include "daemon/peer/callers.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "daemon/peer/peer_proof.h"
#include "tests/daemon/peer_parts.h"

namespace ferry::testing {
namespace {

class CallersTest : public ::testing::Test {
 protected:
  std::shared_ptr<StreamRecord> Call(uint64_t number, PeerId peer = kNodeA) {
    auto [stream, record] = MakeStream();
    callers_.MakeRoom();
    callers_.Add(number, peer, std::move(stream), OwnNode("node-a").Introduce());
    return record;
  }
  // What the daemon `caller` says on our peer.sock, with this share of the link's secret.
  static PeerSocketHello SocketHello(const Callers::Caller& caller, const std::string& random) {
    return {"node-a", caller.ours.nonce, random,
            PeerProof(random, PeerSide::kDialler, {caller.theirs, caller.ours})};
  }

  ManualExecutor control_;
  OwnDaemon own_ = OwnNode("node-b");
  Callers callers_{control_, own_};
};

TEST_F(CallersTest, AreToldWhoWeAreWithProof) {
  const auto record = Call(1);
  const Callers::Caller& caller = *callers_.Find(1);
  ASSERT_EQ(record->sent.size(), 1u);
  EXPECT_EQ(record->sent[0].introduction->nonce, caller.ours.nonce);
  EXPECT_EQ(record->sent[0].proof,
            PeerProof(kPartsSecret, PeerSide::kAcceptor, {caller.theirs, caller.ours}));
  own_.secret = "";
  EXPECT_EQ(Call(2)->sent[0].proof, "");
}

TEST_F(CallersTest, ProveThemselvesWithTheSecret) {
  Call(1);
  const Callers::Caller& caller = *callers_.Find(1);
  PeerFrame frame;
  EXPECT_FALSE(callers_.IsProof(caller, frame));
  frame.proof = PeerProof(kPartsSecret, PeerSide::kAcceptor, {caller.theirs, caller.ours});
  EXPECT_FALSE(callers_.IsProof(caller, frame)) << "our own, said back";
  frame.proof = PeerProof(kPartsSecret, PeerSide::kDialler, {caller.theirs, caller.ours});
  EXPECT_TRUE(callers_.IsProof(caller, frame));
  EXPECT_EQ(callers_.FindProven(SocketHello(caller, std::string(kPeerSecretBytes, 'r'))),
            std::nullopt)
      << "there is a secret";
}

TEST_F(CallersTest, ProveThemselvesOnPeerSockWithoutASecret) {
  own_.secret = "";
  Call(1);
  Call(2);
  const Callers::Caller& caller = *callers_.Find(2);
  const std::string random(kPeerSecretBytes, 'r');
  PeerSocketHello hello = SocketHello(caller, random);
  EXPECT_EQ(callers_.FindProven(hello), 2u);
  hello.proof[0] ^= 1;
  EXPECT_EQ(callers_.FindProven(hello), std::nullopt);
  EXPECT_EQ(callers_.FindProven(SocketHello(caller, "short")), std::nullopt);
  PeerFrame frame;
  frame.proof = PeerProof("", PeerSide::kDialler, {caller.theirs, caller.ours});
  EXPECT_FALSE(callers_.IsProof(caller, frame)) << "everybody has the empty secret";

  const Callers::Caller taken = callers_.Take(2);
  EXPECT_NE(taken.stream, nullptr);
  EXPECT_EQ(callers_.Find(2), nullptr);
  EXPECT_NE(callers_.Find(1), nullptr);
}

TEST_F(CallersTest, TheOldestMakesRoom) {
  std::map<uint64_t, std::shared_ptr<StreamRecord>> records;
  for (uint64_t i = 1; i <= Callers::kMost; ++i) records[i] = Call(i);
  EXPECT_FALSE(records[1]->closed.has_value());
  Call(Callers::kMost + 1);
  ASSERT_TRUE(records[1]->closed.has_value());
  EXPECT_THAT(*records[1]->closed,
              Is("RESOURCE_EXHAUSTED/QUEUE_FULL", "link to node-b: 64 others"));
  EXPECT_FALSE(records[1]->alive);
  EXPECT_FALSE(records[2]->closed.has_value());
}

TEST_F(CallersTest, AreRefusedWhenTheyTakeTooLong) {
  const absl::Time begin = control_.Now();
  const auto first = Call(1);
  control_.Advance(absl::Seconds(1));
  const auto second = Call(2);
  EXPECT_EQ(callers_.OnTime(control_.Now()), begin + Callers::kPatience);
  EXPECT_EQ(callers_.OnTime(begin + Callers::kPatience),
            begin + absl::Seconds(1) + Callers::kPatience);
  ASSERT_TRUE(first->closed.has_value());
  EXPECT_THAT(*first->closed, Is("PERMISSION_DENIED/NOT_ALLOWED", "in time"));
  EXPECT_FALSE(second->closed.has_value());
}

TEST_F(CallersTest, OfAPeerThatLeavesAreRefused) {
  const auto of_a = Call(1, kNodeA), of_c = Call(2, kNodeC), closed = Call(3, kNodeA);
  callers_.Forget(3);
  EXPECT_FALSE(closed->alive);
  callers_.RefuseAllOf(kNodeA, kReset);
  EXPECT_TRUE(of_a->closed.has_value());
  EXPECT_FALSE(closed->closed.has_value()) << "it has closed before";
  EXPECT_FALSE(of_c->closed.has_value());
  callers_.RefuseAll(kReset);
  EXPECT_TRUE(of_c->closed.has_value());
  EXPECT_EQ(callers_.OnTime(control_.Now()), absl::InfiniteFuture());
}

}  // namespace
}  // namespace ferry::testing
