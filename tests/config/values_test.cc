// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/values.h"

#include <gtest/gtest.h>

#include "daemon/config/config.h"

namespace ferry {
namespace {

TEST(ConfigValuesTest, ModesAreOctal) {
  EXPECT_EQ(*ParseMode("0660"), 0660u);
  EXPECT_EQ(*ParseMode("666"), 0666u);
  for (const char* wrong : {"", "rw", "0o660", "1777", "08", "0668", "00660"}) {
    EXPECT_FALSE(ParseMode(wrong).has_value()) << wrong;
  }
}

TEST(ConfigValuesTest, UsersAndGroupsAreNamesOrNumbers) {
  EXPECT_EQ(FindUser("root"), 0u);
  EXPECT_EQ(FindGroup("root"), 0u);
  EXPECT_EQ(FindUser("4711"), 4711u);
  EXPECT_EQ(FindGroup("4711"), 4711u);
  EXPECT_EQ(FindUser("no such user"), std::nullopt);
  EXPECT_EQ(FindGroup("-1"), std::nullopt);
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

// What UCX makes of each is looked at in tests/contract/ucx_listen_test.cc.
TEST(ConfigValuesTest, WhatHasUcxListenOnTcpIsKnown) {
  for (const char* tls :
       {"tcp",        "all",   "\\tcp",       "rc,tcp",   "sm,\\tcp", "tcp:aux", "self,\\tcp:aux",
        "posix, tcp", " all ", "TCP",         "t*",       "?cp",      "[t]cp",   "*",
        "^sm",        "^",     "^posix, tcp", "^tcp:aux", "^t*",      "^all",    "posix,^sm",
        "tcp,^tcp"}) {
    EXPECT_TRUE(NamesTcp(tls)) << tls;
  }
  for (const char* tls : {"", "sm", "posix,sysv,cma,self", "rc,ud,dc,self", "ib,cuda", "rc,ud:aux",
                          "\\rc", "tcpx", "^tcp", "^\\tcp", "^sm,tcp", "posix, sm", "r*"}) {
    EXPECT_FALSE(NamesTcp(tls)) << tls;
  }
}

}  // namespace
}  // namespace ferry
