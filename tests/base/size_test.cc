// SPDX-License-Identifier: Apache-2.0
#include "base/size.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(SizeTest, ReadsPowersOfTwoAndOfTen) {
  EXPECT_EQ(*ParseSize("64GiB"), uint64_t{64} << 30);
  EXPECT_EQ(*ParseSize("256 MiB"), uint64_t{256} << 20);
  EXPECT_EQ(*ParseSize("1.5 gib"), uint64_t{3} << 29);
  EXPECT_EQ(*ParseSize("1GB"), 1'000'000'000u);
  EXPECT_EQ(*ParseSize("0.5kb"), 500u);
  EXPECT_EQ(*ParseSize("5B"), 5u);
  EXPECT_EQ(*ParseSize("4096"), 4096u);
  EXPECT_EQ(*ParseSize("0"), 0u);
  EXPECT_EQ(*ParseSize("9007199254740993"), 9007199254740993u) << "a double has no room for it";
  EXPECT_EQ(*ParseSize("8388607TiB"), uint64_t{8388607} << 40);
}

TEST(SizeTest, RefusesWhatIsNoSize) {
  for (const char* wrong :
       {"", "KiB", "12 parsecs", "-1", "-1GiB", "+1GiB", "1e30GB", "1.2.3MB", "1G", "8388608TiB",
        "9223372036854775808", "99999999999999999999B", "99999999.5TiB", "1GiBx"}) {
    EXPECT_FALSE(ParseSize(wrong).ok()) << wrong;
  }
}

TEST(SizeTest, PrintsInTheLargestUnitThatDividesThem) {
  EXPECT_EQ(FormatSize(uint64_t{64} << 30), "64 GiB");
  EXPECT_EQ(FormatSize((uint64_t{1} << 30) + 1024), "1048577 KiB");
  EXPECT_EQ(FormatSize(1'000'000'000), "1000000000 B");
  EXPECT_EQ(FormatSize(1023), "1023 B");
  EXPECT_EQ(FormatSize(0), "0 B");
}

}  // namespace
}  // namespace ferry
