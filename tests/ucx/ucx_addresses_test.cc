// SPDX-License-Identifier: Apache-2.0
// UcxAddresses: what which peer is told.
#include "transfer/ucx/ucx_addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ferry {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr PeerId kPeer(1), kOther(2);
constexpr GlobalDeviceId kDevice(10), kSecond(11);

TEST(UcxAddressesTest, AWorkerThatIsClosedIsToldToNobody) {
  UcxAddresses addresses;
  EXPECT_EQ(addresses.Add("net", "n1"), 0u);
  EXPECT_EQ(addresses.Add("shm", "s1"), 1u);
  EXPECT_THAT(addresses.For(kPeer), SizeIs(2));
  addresses.Set(0, "");
  auto told = addresses.For(kPeer);
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].kind, "shm");
  addresses.Set(0, "n2");
  told = addresses.For(kPeer);
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_EQ(told[0].address, "n2");
}

TEST(UcxAddressesTest, AWorkerOfTheNetworkBeginsAnewAndOneOfSharedMemoryNeverDoes) {
  UcxAddresses addresses;
  EXPECT_FALSE(addresses.Reaches("net"));
  addresses.Add("net", "n1");
  addresses.Add("shm", "s1");
  EXPECT_TRUE(addresses.Reaches("net"));
  EXPECT_TRUE(addresses.Reaches("shm"));
  addresses.Set(0, "");
  addresses.Set(1, "");
  EXPECT_TRUE(addresses.Reaches("net"));
  EXPECT_FALSE(addresses.Reaches("shm"));
}

TEST(UcxAddressesTest, APeerIsToldHowOftenItsEndpointsWereClosedOnTheNetwork) {
  UcxAddresses addresses;
  addresses.Add("net", "n1");
  addresses.Add("shm", "s1");
  addresses.CountClosing({kPeer, kDevice});
  addresses.CountClosing({kPeer, kDevice});
  addresses.CountClosing({kPeer, kSecond});
  addresses.CountClosing({kOther, kDevice});
  const auto told = addresses.For(kPeer);
  EXPECT_THAT(told[0].closings, UnorderedElementsAre(Pair(kDevice, 2), Pair(kSecond, 1)));
  EXPECT_THAT(told[1].closings, IsEmpty()) << "shared memory is not closed by force";
}

TEST(UcxAddressesTest, TheLargerNumberOfClosingsCounts) {
  UcxAddresses addresses;
  addresses.Add("net", "n1");
  EXPECT_FALSE(addresses.CatchUp({kPeer, kDevice}, 0));
  EXPECT_THAT(addresses.For(kPeer)[0].closings, IsEmpty());
  EXPECT_TRUE(addresses.CatchUp({kPeer, kDevice}, 3)) << "the peer has closed more often";
  EXPECT_FALSE(addresses.CatchUp({kPeer, kDevice}, 3)) << "ours was closed for it";
  addresses.CountClosing({kPeer, kDevice});
  EXPECT_FALSE(addresses.CatchUp({kPeer, kDevice}, 2)) << "ours was closed more often";
  EXPECT_THAT(addresses.For(kPeer)[0].closings, UnorderedElementsAre(Pair(kDevice, 4)));
}

}  // namespace
}  // namespace ferry
