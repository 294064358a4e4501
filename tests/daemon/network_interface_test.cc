// SPDX-License-Identifier: Apache-2.0
#include "daemon/network_interface.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(NetworkInterface, IsTheOneThatHasTheAddress) {
  EXPECT_EQ(InterfaceOf("127.0.0.1"), "lo");
  EXPECT_EQ(InterfaceOf("localhost"), "lo");
  // Reserved for documents (RFC 5737 and 3849), and what stands for all.
  for (const char* none : {"192.0.2.7", "2001:db8::7", "0.0.0.0", "::", "no such host.invalid"}) {
    EXPECT_EQ(InterfaceOf(none), "") << none;
  }
}

}  // namespace
}  // namespace ferry
