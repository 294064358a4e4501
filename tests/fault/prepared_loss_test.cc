// SPDX-License-Identifier: Apache-2.0
// Clients and daemons die between and during firings of prepared transfers: every waiter is
// released, with the reason, and the daemons that live are as before.
#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AnyOf;
using ::testing::StartsWith;

class PreparedLossTest : public RouteTest {
 protected:
  void StartAll(uint64_t bytes) {
    StartForRoute();
    source_ = SpawnSource(bytes);
    destination_ = SpawnDestination(bytes);
    ASSERT_EQ(source_->Tell(absl::StrCat("prepare_send ", source_device(), " ",
                                         destination_device(), " k 0 0 ", bytes, route_option())),
              "OK 0");
    ASSERT_EQ(destination_->Tell(absl::StrCat("prepare_receive ", destination_device(), " ",
                                              source_device(), " k 0 0 ", bytes, route_option())),
              "OK 0");
  }
  void Fire(int times) {
    source_->Order(absl::StrCat("fire 0 ", times));
    EXPECT_EQ(destination_->Tell(absl::StrCat("fire 0 ", times)), absl::StrCat("OK ", times));
    EXPECT_EQ(source_->Answer(), absl::StrCat("OK ", times));
  }
  void TearDown() override {
    source_.reset();
    destination_.reset();
    RouteTest::TearDown();
  }
  std::unique_ptr<ClientProcess> source_, destination_;
};
INSTANTIATE_ALL_ROUTES(PreparedLossTest);

TEST_P(PreparedLossTest, AClientDiesBetweenFirings) {
  StartAll(4096);
  Fire(20);
  source_->Kill();
  EXPECT_THAT(destination_->Tell("fire 0 1"), StartsWith("ABORTED/PEER_CLIENT_GONE"));
}

TEST_P(PreparedLossTest, AClientDiesWhileBothFireAsFastAsTheyCan) {
  for (const bool source : {true, false}) {
    StartAll(source ? 8 : 4 * kMiB);
    source_->Order("fire 0 1000000000");
    destination_->Order("fire 0 1000000000");
    // Some are over.
    ASSERT_TRUE(Await([&] {
      const admin::v1::ListTransfersResponse all = node(destination_node()).admin().Transfers();
      for (const auto& row : all.transfers()) {
        if (row.firings() > 20) return true;
      }
      return false;
    }));
    (source ? source_ : destination_)->Kill();
    EXPECT_THAT((source ? destination_ : source_)->Answer(),
                StartsWith("ABORTED/PEER_CLIENT_GONE"));
    source_.reset();
    destination_.reset();
    ASSERT_TRUE(node(0).AwaitIdle());
    cluster_.reset();
  }
}

TEST_P(PreparedLossTest, TheOtherDaemonDies) {
  StartAll(4096);
  Fire(20);
  source_->Order("fire 0 1000000000");
  destination_->Order("fire 0 1000000000");
  node(destination_node()).Kill();
  EXPECT_THAT(destination_->Answer(), StartsWith("UNAVAILABLE/DAEMON_LOST"));
  EXPECT_THAT(source_->Answer(), GetParam().one_node ? StartsWith("UNAVAILABLE/DAEMON_LOST")
                                                     : StartsWith("UNAVAILABLE/PEER_UNREACHABLE"));
}

}  // namespace
}  // namespace ferry::testing
