// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/values.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(ConfigValuesTest, SizesNeedAUnitAndFit) {
  EXPECT_EQ(*ParseSize("64GiB"), uint64_t{64} << 30);
  EXPECT_EQ(*ParseSize("256 MiB"), uint64_t{256} << 20);
  EXPECT_EQ(*ParseSize("5B"), 5u);
  EXPECT_EQ(*ParseSize("16777215TiB"), uint64_t{16777215} << 40);
  for (const char* wrong : {"", "5", "GiB", "-1GiB", "+1GiB", "1.5GiB", "1gib", "1G", "16777216TiB",
                            "99999999999999999999B", "1GiBx"}) {
    EXPECT_FALSE(ParseSize(wrong).ok()) << wrong;
  }
}

TEST(ConfigValuesTest, SizesPrintInTheLargestUnitThatDividesThem) {
  EXPECT_EQ(FormatSize(uint64_t{64} << 30), "64GiB");
  EXPECT_EQ(FormatSize((uint64_t{1} << 30) + 1024), "1048577KiB");
  EXPECT_EQ(FormatSize(1023), "1023B");
  EXPECT_EQ(FormatSize(0), "0B");
}

TEST(ConfigValuesTest, DurationsArePositiveAndFinite) {
  EXPECT_EQ(*ParseDuration("500ms"), absl::Milliseconds(500));
  EXPECT_EQ(*ParseDuration("1m30s"), absl::Seconds(90));
  for (const char* wrong : {"", "60", "0", "0s", "-1s", "inf", "fast"}) {
    EXPECT_FALSE(ParseDuration(wrong).ok()) << wrong;
  }
}

TEST(ConfigValuesTest, AddressesHaveAHostAndAPort) {
  EXPECT_EQ(ParseHostPort("10.0.0.1:7411")->host, "10.0.0.1");
  EXPECT_EQ(ParseHostPort("10.0.0.1:7411")->port, 7411);
  EXPECT_EQ(ParseHostPort("localhost:0")->port, 0);
  EXPECT_EQ(ParseHostPort("[fd00::1]:1")->host, "fd00::1");
  EXPECT_EQ(ParseHostPort("node-b.example:65535")->host, "node-b.example");
  for (const char* wrong : {"", ":1", "host", "host:", "host:x", "host:65536", "fd00::1:1", "[]:1",
                            "[x]:1", "[::1:1", "[::1]", "a b:1", "host:-1", "host:+1"}) {
    EXPECT_FALSE(ParseHostPort(wrong).ok()) << wrong;
  }
}

TEST(ConfigValuesTest, LoopbackIsKnownWithoutAskingAnyone) {
  for (const char* loopback : {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"}) {
    EXPECT_TRUE(IsLoopback(*ParseHostPort(loopback))) << loopback;
  }
  for (const char* beyond : {"0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[fd00::1]:1", "node-b:1"}) {
    EXPECT_FALSE(IsLoopback(*ParseHostPort(beyond))) << beyond;
  }
}

}  // namespace
}  // namespace ferry
