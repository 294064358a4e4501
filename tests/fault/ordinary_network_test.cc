// SPDX-License-Identifier: Apache-2.0
// Networks that nothing is wrong with, and that are not one cable between two addresses: hosts with
// several addresses in one subnet, subnets that both hosts have for themselves, and firewalls that
// let the peer port through and nothing else, or that for one direction only. In network
// namespaces.
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tests/support/network_namespaces.h"

namespace ferry::testing {
namespace {

using Fate = PacketCable::Fate;

class OrdinaryNetworkTest : public ClusterTest {
 protected:
  // False: skipped.
  bool MakeHosts(NetworkNamespaces::Cable cable) {
    std::string why;
    hosts_ = NetworkNamespaces::Create(cable, &why);
    if (hosts_ == nullptr) skipped_ = "no network namespaces: " + why;
    return hosts_ != nullptr;
  }
  void StartAt(const std::vector<std::string>& addresses) {
    ClusterOptions options;
    options.hosts = addresses;
    for (size_t i = 0; i < 2; ++i) options.launchers.push_back(hosts_->launcher(i));
    options.transfer = kTcpRoute.transfer;
    Start(options);
  }
  // Both ways, from a message to what is cut into several, over several connections.
  void ExpectTransfers() {
    constexpr uint64_t kMost = 8 * kMiB;
    End ends[] = {OpenEnd(0, kMost, 0, "first"), OpenEnd(1, kMost, 0, "second")};
    PostOptions options;
    options.route = kTcpRoute.route;
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{4096}, kMiB, kMost}) {
      for (const size_t from : {0, 1}) {
        End &source = ends[from], &destination = ends[1 - from];
        const std::string key = absl::StrCat(bytes, " from ", from);
        Fill(source.arena, 0, bytes, bytes + from);
        Batch receive =
            Receive(destination, source, key, {destination.arena.Range(0, bytes)}, options);
        Batch send = Send(source, destination, key, {source.arena.Range(0, bytes)}, options);
        EXPECT_THAT(send.Wait(kSoon), IsOk()) << key;
        EXPECT_THAT(receive.Wait(kSoon), IsOk()) << key;
        EXPECT_TRUE(Has(destination.arena, 0, bytes, bytes + from)) << key;
      }
    }
  }

  std::unique_ptr<NetworkNamespaces> hosts_;
  std::string skipped_;
};

#define NEEDS_HOSTS(cable) \
  if (!MakeHosts(NetworkNamespaces::cable)) GTEST_SKIP() << skipped_

// The node's own address is the later one: packets that it sends have the other one, unless they
// answer.
TEST_F(OrdinaryNetworkTest, TwoAddressesInOneSubnet) {
  NEEDS_HOSTS(kOfTheKernel);
  for (size_t i = 0; i < 2; ++i) hosts_->AddAddress(i, absl::StrCat("192.0.2.", 101 + i, "/24"));
  StartAt({"192.0.2.101", "192.0.2.102"});
  ExpectTransfers();
}

TEST_F(OrdinaryNetworkTest, TwoInterfacesInOneSubnet) {
  NEEDS_HOSTS(kOfTheKernel);
  for (size_t i = 0; i < 2; ++i) {
    hosts_->AddInterface(i, "twin", absl::StrCat("192.0.2.", 101 + i, "/24"));
  }
  StartAt({hosts_->address(0), hosts_->address(1)});
  ExpectTransfers();
}

// As of Docker's bridge, which is on each host, at one address, and joins no two of them.
TEST_F(OrdinaryNetworkTest, ASubnetThatEachHostHasForItself) {
  NEEDS_HOSTS(kOfTheKernel);
  for (size_t i = 0; i < 2; ++i) hosts_->AddInterface(i, "docker0", "172.17.0.1/16");
  StartAt({hosts_->address(0), hosts_->address(1)});
  ExpectTransfers();
}

class FirewallTest : public OrdinaryNetworkTest {
 protected:
  // Whether a packet is of a connection to the peer port of node `to`, or answers on one.
  bool IsToPeerPort(const PacketCable::Segment& segment, int to) {
    const uint16_t port = nodes().port(static_cast<size_t>(to));
    return segment.from == to ? segment.source == port : segment.destination == port;
  }
};

TEST_F(FirewallTest, ThatLetsThePeerPortThrough) {
  NEEDS_HOSTS(kOfPackets);
  StartAt({hosts_->address(0), hosts_->address(1)});
  hosts_->packets().SetRule([this](const PacketCable::Segment& segment) {
    return IsToPeerPort(segment, 0) || IsToPeerPort(segment, 1) ? Fate::kCarried : Fate::kLost;
  });
  ExpectTransfers();
}

// Of one node only. Who has work and cannot dial is come to by the other one, which has none.
TEST_F(FirewallTest, ThatLetsOnePeerPortThrough) {
  for (const int open : {0, 1}) {
    NEEDS_HOSTS(kOfPackets);
    StartAt({hosts_->address(0), hosts_->address(1)});
    hosts_->packets().SetRule([this, open](const PacketCable::Segment& segment) {
      return IsToPeerPort(segment, open) ? Fate::kCarried : Fate::kLost;
    });
    {
      Session session = nodes().Open(static_cast<size_t>(open));
      Batch send = Must(session.Send(open == 0 ? 0 : 2, {Transfer(open == 0 ? 2 : 0, "k", {})}));
      const auto state = [&](int i) {
        return node(static_cast<size_t>(i)).admin().PeerState(i == 0 ? "node-b" : "node-a");
      };
      EXPECT_TRUE(Await([&] { return state(open) == "up" && state(1 - open) == "up"; }))
          << "open: " << open << "\n"
          << node(0).Log() << node(1).Log();
      EXPECT_THAT(send.Cancel(), IsOk());
    }
    ExpectTransfers();
    hosts_->packets().SetRule(nullptr);
    ClusterTest::TearDown();
    cluster_.reset();
    hosts_.reset();
  }
}

}  // namespace
}  // namespace ferry::testing
