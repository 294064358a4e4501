// SPDX-License-Identifier: Apache-2.0
// Daemons take route `ucx` only where messages of UCX come through between them.
#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tests/support/network_namespaces.h"

namespace ferry::testing {
namespace {

using std::chrono::seconds;
using ::testing::AnyOf;

class UcxNamespaceTest : public ClusterTest {
 protected:
  void StartBetweenHosts(NetworkNamespaces::Cable cable, const std::string& transfer) {
    std::string why;
    hosts_ = NetworkNamespaces::Create(cable, &why);
    if (hosts_ == nullptr) GTEST_SKIP() << "no network namespaces: " << why;
    ClusterOptions options;
    for (size_t i = 0; i < 2; ++i) {
      options.hosts.push_back(hosts_->address(i));
      options.launchers.push_back(hosts_->launcher(i));
    }
    options.transfer = transfer;
    Start(options);
  }
  // One by `ucx` is refused, or moves its bytes; one by any route moves them.
  Status TryUcx(End& source, End& destination, const std::string& key) {
    PostOptions by_ucx;
    by_ucx.route = FERRY_ROUTE_UCX;
    by_ucx.deadline = seconds(10);
    Batch receive = Receive(destination, source, key, {destination.arena.All()}, by_ucx);
    Batch send = Send(source, destination, key, {source.arena.All()}, by_ucx);
    EXPECT_EQ(receive.Wait(kSoon).ok(), send.Wait(kSoon).ok());
    EXPECT_TRUE(send.over() && receive.over());
    ExpectTransfer(source, destination, absl::StrCat(key, ", by any"));
    return send.Wait();
  }

  std::unique_ptr<NetworkNamespaces> hosts_;
};

// On one host, but in network namespaces of their own: UCX's shared memory wakes nobody there.
TEST_F(UcxNamespaceTest, SharedMemoryIsNotTakenBetweenNetworkNamespaces) {
  StartBetweenHosts(NetworkNamespaces::kOfTheKernel, kUcxShmRoute.transfer);
  if (hosts_ == nullptr) return;
  End source = OpenEnd(0, kMiB), destination = OpenEnd(1, kMiB);
  // The latter if what else UCX may use, between hosts, does not reach either.
  EXPECT_THAT(
      TryUcx(source, destination, "by ucx"),
      AnyOf(Is("FAILED_PRECONDITION/ROUTE_UNAVAILABLE"), Is("UNAVAILABLE/ROUTE_UNAVAILABLE")));
}

}  // namespace
}  // namespace ferry::testing
