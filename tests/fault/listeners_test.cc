// SPDX-License-Identifier: Apache-2.0
// A daemon can be reached by the sockets that its configuration names, and by no other: no library
// in it listens where strangers come. As the kernel lists it, after each route has moved something.
#include "tests/support/listeners.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAreArray;

constexpr uint64_t kMoved = 3 * kMiB;

class ListenersTest : public ClusterTest {
 protected:
  // Everything that daemon i may be reached by: its own sockets, and these ports.
  std::vector<std::string> Named(size_t i, std::vector<std::string> ports) {
    for (const char* socket : {"client/attach.sock", "client/client.sock", "admin/admin.sock",
                               "admin/metrics.sock", "peer/peer.sock"}) {
      ports.push_back(absl::StrCat("unix ", node(i).runtime_dir(), "/", socket));
    }
    if (nodes().size() > 1) ports.push_back(absl::StrCat("tcp 127.0.0.1:", nodes().port(i)));
    return ports;
  }
  std::set<std::string> Listeners(size_t i) { return ListenersOf(node(i).process().pid()); }
  // There and back by each of these routes, so that all that they need is open.
  void Move(const std::vector<int>& routes) {
    End source = OpenEnd(0, kMoved), destination = OpenEnd(1, kMoved);
    for (const int route : routes) {
      PostOptions options;
      options.route = route;
      ExpectTransfer(source, destination, absl::StrCat("there ", route), options);
      ExpectTransfer(destination, source, absl::StrCat("back ", route), options);
    }
  }
};

TEST_F(ListenersTest, OfANodeThatIsAlone) {
  ClusterOptions options;
  options.nodes = 1;
  Start(options);
  End source = OpenEnd(0, kMoved), destination = OpenEnd(0, kMoved, 1);
  ExpectTransfer(source, destination, "k");
  EXPECT_THAT(Listeners(0), UnorderedElementsAreArray(Named(0, {})));
}

TEST_F(ListenersTest, OfANodeWhoseMetricsAreOnAPort) {
  const ReservedPort metrics;
  ClusterOptions options;
  options.nodes = 1;
  options.more = absl::StrCat("metrics: { listen: \"127.0.0.1:", metrics.port(), "\" }\n");
  Start(options);
  EXPECT_THAT(Listeners(0), UnorderedElementsAreArray(
                                Named(0, {absl::StrCat("tcp 127.0.0.1:", metrics.port())})));
}

TEST_F(ListenersTest, OfTwoPeers) {
  Start();
  Move({FERRY_ROUTE_MAPPED, FERRY_ROUTE_TCP});
  for (const size_t i : {0, 1}) {
    EXPECT_THAT(Listeners(i), UnorderedElementsAreArray(Named(i, {})));
  }
}

TEST_F(ListenersTest, OfTwoPeersWithASecret) {
  ClusterOptions options;
  options.secret = true;
  Start(options);
  Move({FERRY_ROUTE_MAPPED, FERRY_ROUTE_TCP});
  for (const size_t i : {0, 1}) {
    EXPECT_THAT(Listeners(i), UnorderedElementsAreArray(Named(i, {})));
  }
}

TEST_F(ListenersTest, UcxOverSharedMemoryAddsNoPort) {
  ClusterOptions options;
  options.transfer = kUcxShmRoute.transfer;
  Start(options);
  Move({FERRY_ROUTE_UCX});
  for (const size_t i : {0, 1}) {
    // What wakes its lanes: it reads of them that something came, and nothing else.
    std::set<std::string> listeners = Listeners(i);
    std::erase_if(listeners,
                  [](const std::string& one) { return absl::StartsWith(one, "unix @"); });
    EXPECT_THAT(listeners, UnorderedElementsAreArray(Named(i, {})));
  }
}

// What the others would look like if a library listened.
TEST_F(ListenersTest, UcxOverTcpIsSeenToListen) {
  ClusterOptions options;
  options.transfer = kUcxTcpRoute.transfer;
  Start(options);
  Move({FERRY_ROUTE_UCX});
  for (const size_t i : {0, 1}) {
    std::set<std::string> unnamed = Listeners(i);
    for (const std::string& named : Named(i, {})) EXPECT_EQ(unnamed.erase(named), 1u) << named;
    EXPECT_THAT(unnamed, Not(IsEmpty()));
    EXPECT_THAT(unnamed, Each(StartsWith("tcp ")));
  }
}

}  // namespace
}  // namespace ferry::testing
