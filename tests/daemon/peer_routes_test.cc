// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/peer_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ferry::testing {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

PeerHello HelloOf(const std::string& node, const std::string& version,
                  std::vector<PeerDeviceInfo> devices) {
  PeerHello hello;
  hello.node = node;
  hello.nccl_version = version;
  hello.devices = std::move(devices);
  return hello;
}
PeerDeviceInfo Host(uint64_t id) { return {GlobalDeviceId(id), {}}; }
PeerDeviceInfo Gpu(uint64_t id, char uuid) {
  return {GlobalDeviceId(id), {}, true, "", std::string(16, uuid)};
}

TEST(NcclBetween, NeedsOneVersionAtBothEnds) {
  const PeerHello ours = HelloOf("node-a", "2.28.9", {Gpu(1, 'a')});
  EXPECT_TRUE(NcclBetween(ours, "", HelloOf("node-b", "2.28.9", {Gpu(3, 'b')}), false).available);
  const RouteState other = NcclBetween(ours, "", HelloOf("node-b", "2.27.3", {}), false);
  EXPECT_FALSE(other.available);
  EXPECT_EQ(other.why,
            "NCCL is 2.28.9 here and 2.27.3 at node-b: one communicator needs one version");
  EXPECT_EQ(NcclBetween(ours, "", HelloOf("node-b", "", {}), false).why, "node-b has no NCCL open");
  EXPECT_EQ(
      NcclBetween(HelloOf("node-a", "", {}), "opening libnccl.so.2: no such file", ours, false).why,
      "opening libnccl.so.2: no such file");
}

TEST(UcxBetween, NeedsOneVersionAtBothEnds) {
  PeerHello ours = HelloOf("node-a", "", {Host(0)}), theirs = HelloOf("node-b", "", {Host(2)});
  ours.ucx_version = "1.22.0";
  theirs.ucx_version = "1.22.0";
  EXPECT_TRUE(UcxBetween(ours, "", theirs, false).available);
  theirs.ucx_version = "1.17.0";
  EXPECT_FALSE(UcxBetween(ours, "", theirs, false).available);
  EXPECT_EQ(UcxBetween(ours, "", theirs, false).why,
            "UCX is 1.22.0 here and 1.17.0 at node-b: its addresses are for one version");
  theirs.ucx_version = "";
  EXPECT_EQ(UcxBetween(ours, "node-b offers none", theirs, false).why, "node-b offers none");
}

TEST(NcclBetween, OnlyBetweenGpusThatAreTwo) {
  const RouteState state =
      NcclBetween(HelloOf("node-a", "2.28.9", {Host(0), Gpu(1, 'a')}), "",
                  HelloOf("node-b", "2.28.9", {Host(2), Gpu(3, 'a'), Gpu(4, 'b')}), false);
  EXPECT_TRUE(state.available);
  const std::string host = "it moves memory of GPUs only";
  const auto clique = [](uint64_t low, uint64_t high) {
    return Clique{GlobalDeviceId(low), GlobalDeviceId(high)};
  };
  EXPECT_THAT(
      state.except,
      UnorderedElementsAre(
          Pair(clique(0, 2), host), Pair(clique(0, 3), host), Pair(clique(0, 4), host),
          Pair(clique(1, 2), host),
          Pair(clique(1, 3), "both devices are one GPU, and NCCL takes no two ranks on one")));
}

TEST(RoutesBetween, PriorsAreOfDaemonsOfOneHost) {
  const PeerHello ours = HelloOf("node-a", "2.28.9", {Gpu(1, 'a')});
  const PeerHello theirs = HelloOf("node-b", "2.28.9", {Gpu(3, 'b')});
  EXPECT_EQ(NcclBetween(ours, "", theirs, true).prior, kNcclWithinHost);
  EXPECT_EQ(StagedBetween("", true).prior, kStagedWithinHost);
  EXPECT_EQ(StagedBetween("no libucp", true).prior, std::nullopt);
  EXPECT_EQ(StagedBetween("no libucp", true).why, "no libucp");
  EXPECT_EQ(NcclBetween(ours, "", theirs, false).prior, std::nullopt);
  EXPECT_EQ(StagedBetween("", false).prior, std::nullopt);
  EXPECT_TRUE(StagedBetween("", false).available);
}

}  // namespace
}  // namespace ferry::testing
