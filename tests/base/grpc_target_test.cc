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

}  // namespace
}  // namespace ferry
