// SPDX-License-Identifier: Apache-2.0
// Two daemons in network namespaces of their own: what happens to the cable happens to their link
// and to UCX's own connections alike.
#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tests/support/network_namespaces.h"

namespace ferry::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CableTest : public RouteTest {
 protected:
  void SetUp() override {
    std::string why;
    hosts_ = NetworkNamespaces::Create(&why);
    if (hosts_ == nullptr) GTEST_SKIP() << "no network namespaces: " << why;
    ClusterOptions options;
    for (size_t i = 0; i < 2; ++i) {
      options.hosts.push_back(hosts_->address(i));
      options.launchers.push_back(hosts_->launcher(i));
    }
    StartForRoute(options);
  }
  // A transfer of all of both arenas whose bytes are on their way.
  struct Flight {
    Batch send, receive;
  };
  Flight Launch(End& source, End& destination) {
    Fill(source.arena, 0, source.arena.bytes(), 1);
    Flight flight;
    flight.receive = Receive(destination, source, "flight", {destination.arena.All()}, options());
    flight.send = Send(source, destination, "flight", {source.arena.All()}, options());
    EXPECT_TRUE(Await([&] { return node(1).admin().Count("launched") == 1; }));
    return flight;
  }

  std::unique_ptr<NetworkNamespaces> hosts_;
};
INSTANTIATE_ROUTES(CableTest, kUcxTcpRoute);

TEST_P(CableTest, PulledWhileBytesAreOnTheirWay) {
  End source = OpenSource(64 * kMiB), destination = OpenDestination(64 * kMiB);
  ExpectTransfer(source, destination, "before", options());
  hosts_->SetRate("100mbit");
  Flight flight = Launch(source, destination);
  hosts_->SetCable(false);
  // UCX may be told first, or the daemons find each other silent.
  const auto lost = AnyOf(Is("UNAVAILABLE/PEER_UNREACHABLE"), Is("ABORTED/COMM_ABORTED"));
  EXPECT_THAT(flight.send.Wait(kSoon), lost);
  EXPECT_THAT(flight.receive.Wait(kSoon), lost);
  ASSERT_TRUE(Await([&] { return node(0).admin().PeerState("node-b") != "up"; }));
  ASSERT_TRUE(Await([&] { return node(1).admin().PeerState("node-a") != "up"; }));
  hosts_->SetCable(true);
  hosts_->SetRate("10gbit");
  ExpectTransfer(source, destination, "after", options());
  ExpectTransfer(destination, source, "after, backwards", options());
}

// Heartbeats share the cable with the bytes: a cable that is full for longer than a peer may be
// silent is no lost peer.
TEST_P(CableTest, FullForLongerThanAPeerMayBeSilent) {
  End source = OpenSource(64 * kMiB), destination = OpenDestination(64 * kMiB);
  ExpectTransfer(source, destination, "before", options());
  hosts_->SetRate("70mbit");
  Flight flight = Launch(source, destination);
  EXPECT_THAT(flight.send.Wait(kSoon), IsOk());
  EXPECT_THAT(flight.receive.Wait(kSoon), IsOk());
  EXPECT_TRUE(Has(destination.arena, 0, 64 * kMiB, 1));
  EXPECT_THAT(node(0).Log(), Not(HasSubstr("peer.lost")));
  EXPECT_THAT(node(1).Log(), Not(HasSubstr("peer.lost")));
}

}  // namespace
}  // namespace ferry::testing
