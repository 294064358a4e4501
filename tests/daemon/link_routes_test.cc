// SPDX-License-Identifier: Apache-2.0
// What we say to peers of our devices, and which routes there are to them.
#include "daemon/peer/link_routes.h"

#include <string>
#include <vector>

#include "tests/daemon/peer_parts.h"

namespace ferry::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class LinkRoutesTest : public ::testing::Test {
 protected:
  static PeerHello Theirs(const std::string& ucx_version) {
    PeerHello hello;
    hello.node = "node-c";
    hello.ucx_version = ucx_version;
    hello.devices = {{GlobalDeviceId(4), {UcxAddressBlob()}}, {GlobalDeviceId(5), {}}};
    return hello;
  }
  static LinkView View(const PeerConfig& peer, const PeerHello& hello, bool mapped) {
    return {.peer = kNodeC,
            .number = 3,
            .dialled = true,
            .mapped = mapped,
            .node = peer.node,
            .devices = peer.devices,
            .secret = hello.node,
            .hello = hello};
  }
  static OwnDaemon Own() {
    OwnDaemon own = OwnNode("node-b");
    own.ucx_version = "1.15";
    return own;
  }
  const OwnDaemon own_ = Own();
  Devices devices_{{2}};
  LinkRoutes routes_{own_,
                     devices_.table,
                     {GlobalDeviceId(2), GlobalDeviceId(3)},
                     {.tcp = {}, .ucx = {}, .ucx_missing = "", .nccl_missing = "no NCCL"}};
};

TEST_F(LinkRoutesTest, OurHelloNamesDevicesThatAreMissingToo) {
  const PeerHello hello = routes_.MakeHello(kNodeC);
  EXPECT_EQ(hello.node, "node-b");
  EXPECT_EQ(hello.ucx_version, "1.15");
  ASSERT_THAT(hello.devices, SizeIs(2));
  EXPECT_EQ(hello.devices[0].id, GlobalDeviceId(2));
  EXPECT_FALSE(hello.devices[0].gpu);
  EXPECT_EQ(hello.devices[1].id, GlobalDeviceId(3));
  EXPECT_TRUE(hello.devices[1].gpu);
  EXPECT_EQ(hello.devices[1].name, "missing");
}

TEST_F(LinkRoutesTest, AddressesAreOfOneVersionOfUcx) {
  PeerHello same = Theirs("1.15"), other = Theirs("1.16");
  routes_.Trim(same);
  routes_.Trim(other);
  EXPECT_THAT(same.devices[0].ucx_addresses, SizeIs(1));
  EXPECT_THAT(other.devices[0].ucx_addresses, IsEmpty());
  const std::vector<PeerDeviceInfo> moved = {
      {GlobalDeviceId(5), {UcxAddressBlob(), UcxAddressBlob()}}, {GlobalDeviceId(6), {}}};
  EXPECT_TRUE(routes_.OnMoved(same, moved));
  EXPECT_THAT(same.devices[0].ucx_addresses, SizeIs(1));
  EXPECT_THAT(same.devices[1].ucx_addresses, SizeIs(2));
  EXPECT_FALSE(routes_.OnMoved(other, moved));
  EXPECT_THAT(other.devices[1].ucx_addresses, IsEmpty());
}

TEST_F(LinkRoutesTest, ALinkThatGoesUpHasARowOfEachRoute) {
  const PeerConfig peer = PeerNode("node-c", {GlobalDeviceId(4)});
  const PeerHello hello = Theirs("1.15");
  routes_.Start(View(peer, hello, false));
  EXPECT_FALSE(routes_.IsUnsettled(kNodeC));
  EXPECT_FALSE(routes_.GiveUp(kNodeC, absl::Seconds(2)));
  RouteTable table = routes_.GoUp(View(peer, hello, false), "on another host");
  ASSERT_THAT(table, SizeIs(kRoutes));
  EXPECT_FALSE(table[static_cast<size_t>(Route::kLocal)].available);
  EXPECT_FALSE(table[static_cast<size_t>(Route::kMapped)].available);
  EXPECT_EQ(table[static_cast<size_t>(Route::kMapped)].why, "on another host");
  EXPECT_EQ(table[static_cast<size_t>(Route::kNccl)].why, "no NCCL");
  for (size_t i = 1; i < kRoutes; ++i) {  // all but kUnspecified
    EXPECT_NE(table[i].available, !table[i].why.empty()) << RouteName(static_cast<Route>(i));
  }
  routes_.Stop(kNodeC, kReset);
  table = routes_.GoUp(View(peer, hello, true), "");
  EXPECT_TRUE(table[static_cast<size_t>(Route::kMapped)].available);
}

}  // namespace
}  // namespace ferry::testing
