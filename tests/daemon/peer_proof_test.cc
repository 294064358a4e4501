// SPDX-License-Identifier: Apache-2.0
// Who a daemon says that it is counts for nothing before it is proven: by the cluster's secret, or
// without one on peer.sock. Who proves nothing costs nobody else anything.
#include "daemon/peer/peer_proof.h"

#include <string>
#include <vector>

#include "daemon/peer/callers.h"
#include "daemon/peer/partings.h"
#include "daemon/peer/peer_link.h"
#include "tests/daemon/peer_rig.h"

namespace ferry {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::Is;
using ::testing::IsEmpty;
using testing::kNodeA;
using testing::kNodeC;
using testing::kReset;
using testing::PeerRig;
using ::testing::SizeIs;
using testing::StreamRecord;

PeerIntroduction Party(char which) {
  PeerIntroduction party;
  party.node = std::string("node-") + which;
  party.nonce = std::string(kPeerNonceBytes, which);
  party.boot_id = "boot";
  party.peer_socket = "/peer.sock";
  return party;
}

TEST(PeerProof, IsOfOneSideOfOneLink) {
  const PeerIntroduction a = Party('a'), b = Party('b');
  const std::string proof = PeerProof("secret", PeerSide::kDialler, {a, b});
  EXPECT_EQ(proof.size(), 32u);
  EXPECT_EQ(proof, PeerProof("secret", PeerSide::kDialler, {a, b}));
  EXPECT_NE(proof, PeerProof("secret", PeerSide::kAcceptor, {a, b})) << "said back";
  EXPECT_NE(proof, PeerProof("secret", PeerSide::kDialler, {b, a}));
  EXPECT_NE(proof, PeerProof("other", PeerSide::kDialler, {a, b}));
  const std::function<void(PeerIntroduction&)> edits[] = {
      [](PeerIntroduction& one) { one.nonce[31] = 'x'; },
      [](PeerIntroduction& one) { one.node += 'x'; },
      [](PeerIntroduction& one) { one.incarnation = Incarnation(1); },
      [](PeerIntroduction& one) { one.boot_id = "other"; },
      [](PeerIntroduction& one) { one.peer_socket = "/other"; },
      [](PeerIntroduction& one) { one.uid = 7; },
      [](PeerIntroduction& one) { one.protocol.newest = 9; },
      [](PeerIntroduction& one) {  // the same letters in other fields
        one.boot_id = "boot/peer";
        one.peer_socket = ".sock";
      },
  };
  for (const auto& edit : edits) {
    PeerIntroduction other = a;
    edit(other);
    EXPECT_NE(proof, PeerProof("secret", PeerSide::kDialler, {other, b}));
    EXPECT_NE(PeerLinkSecret("secret", {a, b}), PeerLinkSecret("secret", {other, b}));
  }
  EXPECT_EQ(PeerLinkSecret("secret", {a, b}).size(), kPeerSecretBytes);
  EXPECT_NE(PeerLinkSecret("secret", {a, b}), proof);
}

// RFC 4231, case 2.
TEST(PeerProof, IsHmacSha256) {
  EXPECT_EQ(HmacSha256("Jefe", "what do ya want for nothing?").substr(0, 4), "\x5b\xdc\xc1\x46");
}

// --- With a secret.

TEST(PeerWithASecret, WhoDoesNotHaveItIsNoPeerOfOurs) {
  for (const std::string& secret : {std::string("a guess"), std::string()}) {
    PeerRig rig;
    const auto stream = rig.CallAsNodeA(rig.HelloOf(kNodeA));
    ASSERT_NE(stream, nullptr);
    EXPECT_FALSE(stream->sent.at(0).hello.has_value()) << "a stranger hears our name only";
    stream->callbacks.on_frame(rig.ProofOfNodeA(*stream, rig.HelloOf(kNodeA), secret));
    ASSERT_TRUE(stream->closed.has_value());
    EXPECT_THAT(*stream->closed, Is("PERMISSION_DENIED/NOT_ALLOWED", "peer.secret_file"));
    EXPECT_EQ(rig.StateOf(kNodeA), "idle");
    EXPECT_THAT(stream->sent, SizeIs(1));
  }
}

TEST(PeerWithASecret, AStrangerDoesNotTouchTheLinkThatIsUp) {
  PeerRig rig;
  const auto good = rig.AcceptNodeA();
  const auto bad = rig.CallAsNodeA(rig.HelloOf(kNodeA));
  EXPECT_FALSE(good->closed.has_value());
  PeerFrame offer;
  offer.messages = {rig.OfferOfNodeC(1, ArenaId(1), 8, "k")};
  bad->callbacks.on_frame(std::move(offer));
  EXPECT_TRUE(bad->closed.has_value()) << "nothing is heard of who has proven nothing";
  const auto another = rig.CallAsNodeA(rig.HelloOf(kNodeA));
  another->callbacks.on_closed(kReset);
  EXPECT_FALSE(good->closed.has_value());
  EXPECT_TRUE(good->alive);
  EXPECT_EQ(rig.driver->engine().view().waiting_offers(), 0u);
}

TEST(PeerWithASecret, OurProofSaidBackOrSaidOfAnotherLinkIsNone) {
  PeerRig rig;
  const PeerHello hello = rig.HelloOf(kNodeA);
  const auto first = rig.CallAsNodeA(hello);
  const auto second = rig.CallAsNodeA(hello);
  PeerFrame back;
  back.proof = first->sent.at(0).proof;
  const PeerFrame replayed = rig.ProofOfNodeA(*first, hello);
  first->callbacks.on_frame(std::move(back));
  EXPECT_TRUE(first->closed.has_value());
  second->callbacks.on_frame(replayed);
  EXPECT_TRUE(second->closed.has_value());
  EXPECT_EQ(rig.StateOf(kNodeA), "idle");
}

TEST(PeerWithASecret, WhoAnswersOurDialWithoutItIsNotTold) {
  for (const std::string& proof : {std::string(), std::string(32, 'p')}) {
    PeerRig rig;
    const auto stream = rig.DialNodeC();
    PeerFrame frame;
    frame.introduction = rig.HelloOf(kNodeC);
    frame.proof = proof;
    stream->callbacks.on_frame(std::move(frame));
    ASSERT_THAT(stream->sent, SizeIs(2)) << "our introduction, and why it is refused";
    ASSERT_TRUE(stream->sent[1].refusal.has_value());
    EXPECT_THAT(*stream->sent[1].refusal, Is("PERMISSION_DENIED/NOT_ALLOWED", "peer.secret_file"));
    EXPECT_EQ(stream->sent[1].proof, "");
    EXPECT_FALSE(stream->sent[1].hello.has_value());
    EXPECT_THAT(rig.connects, IsEmpty());
  }
}

TEST(PeerWithASecret, WhoAnswersOurDialDoesNotKeepItByMereLife) {
  PeerRig rig;
  const auto stream = rig.DialNodeC();
  for (int second = 0; second < 5; ++second) {
    EXPECT_EQ(rig.StateOf(kNodeC), "connecting");
    rig.Advance(absl::Seconds(1));
    stream->callbacks.on_frame({});
  }
  EXPECT_EQ(rig.StateOf(kNodeC), "lost");
}

TEST(PeerWithASecret, PeerSockIsForWhoHasProvenItOnTheLink) {
  PeerRig rig;
  const auto stream = rig.CallAsNodeA(rig.HelloOf(kNodeA));
  PeerSocketHello hello{"node-a", rig.OurIntroduction(*stream).nonce, std::string(32, 'r')};
  hello.proof = PeerProof(hello.random, PeerSide::kDialler,
                          {rig.HelloOf(kNodeA), rig.OurIntroduction(*stream)});
  EXPECT_THAT(rig.Ask(90, hello).response.error, Is("PERMISSION_DENIED/NOT_ALLOWED"));
  EXPECT_EQ(rig.StateOf(kNodeA), "idle");
}

TEST(PeerCallers, AreGivenUpAfterATimeAndTheOldestFirst) {
  PeerRig rig;
  std::vector<std::shared_ptr<StreamRecord>> callers;
  for (size_t i = 0; i <= Callers::kMost; ++i) {
    callers.push_back(rig.CallAsNodeA(rig.HelloOf(kNodeA)));
  }
  ASSERT_TRUE(callers[0]->closed.has_value());
  EXPECT_THAT(*callers[0]->closed, Is("RESOURCE_EXHAUSTED/QUEUE_FULL"));
  EXPECT_FALSE(callers[1]->closed.has_value());
  // The true one gets through all the same.
  const auto good = rig.AcceptNodeA();
  EXPECT_FALSE(good->closed.has_value());
  rig.Advance(Callers::kPatience);
  for (const auto& caller : callers) EXPECT_TRUE(caller->closed.has_value());
}

TEST(PeerKnock, OfAnybodyDialsAtMostOnceASecond) {
  PeerRig rig;
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(rig.peers->OnKnock("node-c"), Is("OK"));
    rig.Turn();
    if (rig.StateOf(kNodeC) == "connecting") {
      rig.dialer.streams.back()->callbacks.on_closed(kReset);
    }
  }
  EXPECT_THAT(rig.dialer.dialled, SizeIs(1));
  rig.Advance(absl::Seconds(10));
  EXPECT_THAT(rig.dialer.dialled, SizeIs(1)) << "nobody here wants the link";
  EXPECT_THAT(rig.peers->OnKnock("node-c"), Is("OK"));
  rig.Turn();
  EXPECT_THAT(rig.dialer.dialled, SizeIs(2));
}

// --- Two of one name.

TEST(PeerOfTheSameName, IsRefusedWhileTheFirstLives) {
  PeerRig rig;
  PeerHello hello = rig.HelloOf(kNodeA);
  hello.boot_id = "another host";
  const auto first = rig.AcceptNodeA(hello);
  EXPECT_EQ(rig.StateOf(kNodeA), "up");
  hello.incarnation = Incarnation(2000);
  rig.Advance(PeerLink::kLives - absl::Nanoseconds(1));
  const auto second = rig.AcceptNodeA(hello);
  ASSERT_TRUE(second->closed.has_value());
  EXPECT_THAT(*second->closed, Is("ALREADY_EXISTS/CONFIG_INVALID", "two daemons have one"));
  EXPECT_FALSE(first->closed.has_value());
  // One that is not heard any more has died without a word, and this is its next life.
  rig.Advance(absl::Nanoseconds(1));
  const auto third = rig.AcceptNodeA(hello);
  EXPECT_TRUE(first->closed.has_value());
  EXPECT_FALSE(third->closed.has_value());
  EXPECT_EQ(rig.RowOf(kNodeA).incarnation, Incarnation(2000));
}

// --- Without a secret.

struct WithoutASecret : PeerRig {
  explicit WithoutASecret(std::vector<uint32_t> trusted = {}) : PeerRig(std::move(trusted), "") {}
  static PeerSocketHello HelloTo(const StreamRecord& stream, const PeerIntroduction& caller) {
    PeerSocketHello hello{caller.node, OurIntroduction(stream).nonce, std::string(32, 'r')};
    hello.proof = PeerProof(hello.random, PeerSide::kDialler, {caller, OurIntroduction(stream)});
    return hello;
  }
};

TEST(PeerWithoutASecret, IsProvenOnPeerSock) {
  WithoutASecret rig;
  const PeerHello hello = rig.HelloOf(kNodeA);
  const auto stream = rig.CallAsNodeA(hello);
  EXPECT_EQ(stream->sent.at(0).proof, "");
  EXPECT_EQ(rig.StateOf(kNodeA), "idle");
  const auto& answer = rig.Ask(90, WithoutASecret::HelloTo(*stream, hello));
  EXPECT_THAT(answer.response.error, Is("OK"));
  EXPECT_EQ(std::get<PeerSocketWelcome>(answer.response.body).random.size(), 32u);
  EXPECT_THAT(answer.fds, SizeIs(3));
  EXPECT_EQ(rig.StateOf(kNodeA), "connecting");
  EXPECT_THAT(rig.connects, IsEmpty()) << "until it says hello";
  stream->callbacks.on_frame({{}, hello});
  EXPECT_TRUE(stream->sent.at(1).hello.has_value());
  EXPECT_THAT(rig.connects, SizeIs(1));
}

TEST(PeerWithoutASecret, AStrangerOnPeerSockOrBesideItProvesNothing) {
  const PeerHello hello = PeerRig::HelloOf(kNodeA);
  struct Case {
    const char* what;
    std::function<void(PeerSocketHello&)> edit;
    uint32_t uid;
  };
  const Case cases[] = {
      {"another uid", [](PeerSocketHello&) {}, geteuid() + 1},
      {"of another link", [](PeerSocketHello& said) { said.asked_nonce[0] ^= 1; }, geteuid()},
      {"of other introductions", [](PeerSocketHello& said) { said.proof[0] ^= 1; }, geteuid()},
      {"no random bytes", [](PeerSocketHello& said) { said.random.clear(); }, geteuid()},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    WithoutASecret rig;
    const auto stream = rig.CallAsNodeA(hello);
    PeerSocketHello said = WithoutASecret::HelloTo(*stream, hello);
    c.edit(said);
    EXPECT_THAT(rig.Ask(90, said, c.uid).response.error, Is("PERMISSION_DENIED/NOT_ALLOWED"));
    EXPECT_EQ(rig.StateOf(kNodeA), "idle");
    stream->callbacks.on_frame({{}, hello});
    EXPECT_TRUE(stream->closed.has_value());
    EXPECT_EQ(rig.StateOf(kNodeA), "idle");
    EXPECT_THAT(rig.connects, IsEmpty()) << "to a path that a stranger named";
  }
}

TEST(PeerWithoutASecret, OfAnotherHostOrUserIsRefusedWithWhatHelps) {
  WithoutASecret rig;
  PeerHello hello = rig.HelloOf(kNodeA);
  hello.boot_id = "another host";
  EXPECT_EQ(rig.CallAsNodeA(hello), nullptr);
  EXPECT_THAT(rig.refused,
              Is("PERMISSION_DENIED/NOT_ALLOWED", "head -c 32 /dev/urandom > ferry.secret"));
  hello = rig.HelloOf(kNodeA);
  hello.uid = geteuid() + 1;
  EXPECT_EQ(rig.CallAsNodeA(hello), nullptr);
  EXPECT_THAT(rig.refused,
              Is("PERMISSION_DENIED/NOT_ALLOWED", "which peer.uids of node-b does not list"));
  WithoutASecret trusting({geteuid() + 1});
  EXPECT_NE(trusting.CallAsNodeA(hello), nullptr);
}

TEST(PeerWithoutASecret, WhomWeDialProvesItOnItsPeerSock) {
  WithoutASecret rig;
  const auto stream = rig.DialNodeC();
  PeerFrame frame;
  frame.introduction = rig.HelloOf(kNodeC);
  stream->callbacks.on_frame(std::move(frame));
  ASSERT_THAT(rig.requests, SizeIs(1));
  const auto& said = std::get<PeerSocketHello>(rig.requests[0].request.body);
  EXPECT_EQ(said.proof, PeerProof(said.random, PeerSide::kDialler,
                                  {rig.OurIntroduction(*stream), rig.HelloOf(kNodeC)}));
  EXPECT_THAT(stream->sent, SizeIs(1)) << "it is told more once it is known";
  auto page = LinkPage::Create();
  ASSERT_TRUE(page.ok());
  rig.Answer(kNodeC, absl::OkStatus(), PeerSocketWelcome{std::string(32, 'w')},
             UniqueFd(dup((*page)->memfd())));
  ASSERT_THAT(stream->sent, SizeIs(2));
  EXPECT_TRUE(stream->sent[1].hello.has_value());
  EXPECT_EQ(rig.StateOf(kNodeC), "connecting");
  stream->callbacks.on_frame({{}, rig.HelloOf(kNodeC)});
  EXPECT_EQ(rig.StateOf(kNodeC), "up");
  EXPECT_TRUE(rig.RowOf(kNodeC).mapped);
}

TEST(PeerWithoutASecret, WhomWeDialMustProveIt) {
  const std::vector<std::function<void(PeerRig&)>> answers = {
      [](PeerRig& rig) { rig.Answer(kNodeC, kReset, PeerSocketWelcome{}); },
      [](PeerRig& rig) { rig.Answer(kNodeC, absl::OkStatus(), PeerSocketWelcome{}); },
      [](PeerRig& rig) {
        rig.Answer(kNodeC, absl::OkStatus(), ArenaLent{ArenaId(1), {MemoryKind::kMemfd, 1}});
      },
      [](PeerRig& rig) {
        rig.peers->OnSocketClosed(rig.requests.back().connection);
        EXPECT_EQ(rig.StateOf(kNodeC), "connecting") << "the stream may say why";
        rig.Advance(Partings::kTimeout);
      },
      [](PeerRig& rig) { rig.Advance(PeerLink::kDialTimeout); },
      [](PeerRig& rig) {
        rig.dialer.streams[0]->callbacks.on_frame({{}, rig.HelloOf(kNodeC)});
      },
  };
  for (const auto& answer : answers) {
    WithoutASecret rig;
    const auto stream = rig.DialNodeC();
    PeerFrame frame;
    frame.introduction = rig.HelloOf(kNodeC);
    stream->callbacks.on_frame(std::move(frame));
    answer(rig);
    EXPECT_EQ(rig.StateOf(kNodeC), "lost");
    for (const PeerFrame& sent : stream->sent) EXPECT_FALSE(sent.hello.has_value());
  }
}

}  // namespace
}  // namespace ferry
