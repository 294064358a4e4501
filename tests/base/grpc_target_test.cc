// SPDX-License-Identifier: Apache-2.0
#include "base/grpc_target.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(GrpcTarget, PathsAreWhatTheyAre) {
  EXPECT_EQ(UnixTarget("/run/ferry/admin/admin.sock"), "unix:/run/ferry/admin/admin.sock");
  EXPECT_EQ(UnixTarget("run/admin.sock"), "unix:run/admin.sock");
  EXPECT_EQ(UnixTarget("/a%41#b?c d/\xc3\xa4"), "unix:/a%2541%23b%3fc%20d/%c3%a4");
}

TEST(GrpcTarget, HostsAreNoSchemes) {
  EXPECT_EQ(HostTarget("node-b:7411"), "dns:///node-b:7411");
  EXPECT_EQ(HostTarget("unix:7411"), "dns:///unix:7411");
  EXPECT_EQ(HostTarget("192.0.2.1:7411"), "dns:///192.0.2.1:7411");
  EXPECT_EQ(HostTarget("[fe80::1%eth0]:7411"), "dns:///%5bfe80::1%25eth0%5d:7411");
}

TEST(GrpcTarget, OfWhatGrpcSaysWhenItCannotConnectTheCauseIsLeft) {
  const std::string all = "failed to connect to all addresses; last error: ";
  EXPECT_EQ(GrpcErrorText(all + "UNKNOWN: ipv4:192.0.2.1:7411: Failed to connect to remote host: "
                                "Connection refused"),
            "connect to 192.0.2.1:7411: Connection refused");
  EXPECT_EQ(GrpcErrorText(all + "UNAVAILABLE: ipv6:%5B2001:db8::1%5D:7411: connection attempt "
                                "timed out before receiving SETTINGS frame"),
            "connect to [2001:db8::1]:7411: connection attempt timed out before receiving SETTINGS "
            "frame");
  EXPECT_EQ(GrpcErrorText(all + "No route to host"), "connect to No route to host");
  EXPECT_EQ(GrpcErrorText(all), "connect to ");
  EXPECT_EQ(GrpcErrorText("Socket closed"), "Socket closed");
}

}  // namespace
}  // namespace ferry
