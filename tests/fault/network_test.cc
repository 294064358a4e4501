// SPDX-License-Identifier: Apache-2.0
// What networks do to the link between two daemons: slow, stalling, cut again and again, silent in
// one direction or both. Whatever it does, each transfer ends once at each end, a receive that
// ended well has its bytes, and a healed link serves.
#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::Not;

class NetworkTest : public RouteTest {
 protected:
  void StartWithProxies() {
    ClusterOptions options;
    options.proxies = true;
    StartForRoute(options);
    ends_.push_back(OpenSource(kMiB));
    ends_.push_back(OpenDestination(kMiB));
  }
  void TearDown() override {
    ends_.clear();
    RouteTest::TearDown();
  }
  End& source() { return ends_[0]; }
  End& destination() { return ends_[1]; }
  // The smaller name dials: the link goes through the second node's proxy.
  TcpProxy& link() { return nodes().proxy(1); }

  struct Flight {
    Batch send, receive;
    uint64_t seed = 0;
  };
  static constexpr uint64_t kBytes = 8192;
  // One transfer, posted at both ends.
  Flight Launch(uint64_t i) {
    const uint64_t at = i % 64 * kBytes;
    const std::string key = absl::StrCat("flight-", i);
    Flight flight;
    flight.seed = i;
    Fill(source().arena, at, kBytes, i);
    PostOptions post = options();
    post.deadline = deadline_;
    flight.receive =
        Receive(destination(), source(), key, {destination().arena.Range(at, kBytes)}, post);
    flight.send = Send(source(), destination(), key, {source().arena.Range(at, kBytes)}, post);
    return flight;
  }
  // Both ends are over, in time; a receive that went well has its bytes. True if it did.
  bool Land(Flight& flight) {
    const uint64_t at = flight.seed % 64 * kBytes;
    // One half may find the link gone while the other, posted later, waits for it in vain.
    const auto lost =
        AnyOf(IsOk(), Is("UNAVAILABLE/PEER_UNREACHABLE"), Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"),
              Is("ABORTED/COMM_ABORTED"));  // UCX was told first
    // Longer than the transfers have: whose partner is gone ends at its deadline.
    const Status received = flight.receive.Wait(deadline_ + kSoon);
    const Status sent = flight.send.Wait(deadline_ + kSoon);
    EXPECT_THAT(received, lost);
    EXPECT_THAT(sent, lost);
    EXPECT_TRUE(received.ok() || !sent.ok()) << "sent well, but: " << received.ToString();
    if (!received.ok()) return false;
    EXPECT_TRUE(Has(destination().arena, at, kBytes, flight.seed));
    return true;
  }
  milliseconds deadline_ = kSoon;  // of what Launch posts
  // Posts that find no link wait for it, so this also waits until it is there again.
  void ExpectHealed(const std::string& key) {
    ExpectTransfer(source(), destination(), key, options());
    ExpectTransfer(destination(), source(), key + " backwards", options());
  }

 private:
  std::vector<End> ends_;
};
INSTANTIATE_PEER_ROUTES(NetworkTest);

TEST_P(NetworkTest, DelayAndStallsOnlyTakeTime) {
  StartWithProxies();
  ExpectHealed("before");
  const uint64_t connections = link().connections();
  link().Delay(milliseconds(20), milliseconds(300));
  std::vector<Flight> flights;
  for (uint64_t i = 0; i < 32; ++i) flights.push_back(Launch(i));
  for (Flight& flight : flights) EXPECT_TRUE(Land(flight));
  EXPECT_EQ(link().connections(), connections) << "a slow link is no lost one";
}

// Daemons of one host say little over peer.sock and much on the link's stream: here the little is
// always there first. That data is defined means nothing before the send is offered.
TEST_P(NetworkTest, WhatComesByAFasterRoadWaitsForItsTurn) {
  StartWithProxies();
  ExpectHealed("before");
  link().Delay(milliseconds(20), milliseconds(100));
  constexpr uint64_t kMany = 2000, kLater = 100, kAt = 64 * kBytes;
  for (uint64_t round = 1; round <= 4; ++round) {
    std::vector<Transfer> sends, receives;
    for (uint64_t i = 0; i < kMany; ++i) {
      const std::string key = absl::StrCat("many-", i);
      sends.emplace_back(destination().device, key,
                         std::vector<Range>{source().arena.Range(kAt + 8 * i, 8)});
      if (i < kLater) sends.back().defined_at = Transfer::DefinedAt{0, round};
      receives.emplace_back(source().device, key,
                            std::vector<Range>{destination().arena.Range(kAt + 8 * i, 8)});
    }
    Fill(source().arena, kAt, kMany * 8, round);
    Batch received = Must(destination().session.Receive(destination().device, receives, options()));
    Batch sent = Must(source().session.Send(source().device, sends, options()));
    EXPECT_THAT(source().session.Define(0, round), IsOk());
    std::vector<Flight> flights;
    for (uint64_t i = 0; i < 16; ++i) flights.push_back(Launch(round * 16 + i));
    for (Flight& flight : flights) EXPECT_TRUE(Land(flight));
    EXPECT_THAT(sent.Wait(kSoon), IsOk());
    EXPECT_THAT(received.Wait(kSoon), IsOk());
    EXPECT_TRUE(Has(destination().arena, kAt, kMany * 8, round));
  }
}

TEST_P(NetworkTest, CutAgainAndAgain) {
  StartWithProxies();
  deadline_ = seconds(2);
  uint64_t next = 0, good = 0, connections = 0;
  const auto is_up_again = [&] {
    return Await([&] {
      Flight flight = Launch(next++);
      return Land(flight) && link().connections() > connections;
    });
  };
  for (int cut = 0; cut < 12; ++cut) {
    // Every other cut is of a link that is up, the rest may be of one that is being dialled again.
    if (cut % 2 == 0) {
      ASSERT_TRUE(is_up_again()) << "before cut " << cut;
      connections = link().connections();
    }
    std::vector<Flight> flights;
    const uint64_t count = 1 + static_cast<uint64_t>(cut) % 7;
    for (uint64_t i = 0; i < count; ++i) flights.push_back(Launch(next++));
    link().Cut();
    flights.push_back(Launch(next++));  // finds the link lost, or about to be
    for (Flight& flight : flights) good += Land(flight) ? 1 : 0;
  }
  // All of these may have landed before an end heard of the last cut; of this one both have heard.
  ASSERT_TRUE(is_up_again());
  connections = link().connections();
  link().Cut();
  ASSERT_TRUE(is_up_again());
  ExpectHealed("after");
  EXPECT_GT(good, 0u);
}

// Nothing comes from one side, or from neither, and no socket says so: both ends of what is under
// way hear of it when 5 s of silence are over.
class SilentNetworkTest : public NetworkTest {
 protected:
  void ExpectLossAndHealing(std::vector<TcpProxy::Direction> silent) {
    StartWithProxies();
    ExpectHealed("before");
    Transfer later(destination().device, "later", {source().arena.Range(0, kBytes)});
    later.defined_at = Transfer::DefinedAt{0, 1};
    Batch send = Must(source().session.Send(source().device, {later}, options()));
    Batch receive = Receive(destination(), source(), "later",
                            {destination().arena.Range(0, kBytes)}, options());
    ASSERT_TRUE(Await([&] { return node(0).admin().Count("matched") == 1; }));
    for (const TcpProxy::Direction direction : silent) link().Silence(direction, true);
    EXPECT_THAT(source().session.Define(0, 1), IsOk());
    // Where the word that the data is there still arrives, the bytes may too.
    const auto ended = AnyOf(IsOk(), Is("UNAVAILABLE/PEER_UNREACHABLE"));
    EXPECT_THAT(send.Wait(kSoon), ended);
    EXPECT_THAT(receive.Wait(kSoon), ended);
    ASSERT_TRUE(Await([&] { return node(0).admin().PeerState("node-b") != "up"; }));
    ASSERT_TRUE(Await([&] { return node(1).admin().PeerState("node-a") != "up"; }));
    for (const TcpProxy::Direction direction : silent) link().Silence(direction, false);
    ExpectHealed("after");
  }
};
INSTANTIATE_PEER_ROUTES(SilentNetworkTest);

TEST_P(SilentNetworkTest, FromTheDialler) { ExpectLossAndHealing({TcpProxy::kFromClient}); }
TEST_P(SilentNetworkTest, FromTheDialled) { ExpectLossAndHealing({TcpProxy::kFromServer}); }
TEST_P(SilentNetworkTest, HalfOpen) {
  ExpectLossAndHealing({TcpProxy::kFromClient, TcpProxy::kFromServer});
}

}  // namespace
}  // namespace ferry::testing
