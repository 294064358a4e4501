// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/format.h"

#include <gtest/gtest.h>

#include "base/size.h"
#include "ferry/ferry.h"
#include "tools/ferryctl/checksum.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::tools {
namespace {

TEST(FormatTest, ParsesDurations) {
  EXPECT_EQ(*ParseDuration("2"), absl::Seconds(2));
  EXPECT_EQ(*ParseDuration("250ms"), absl::Milliseconds(250));
  EXPECT_EQ(*ParseDuration("1m30s"), absl::Seconds(90));
  EXPECT_FALSE(ParseDuration("soon").ok());
  EXPECT_FALSE(ParseDuration("-1s").ok());
  EXPECT_EQ(*ParseDuration("0"), absl::ZeroDuration());
  EXPECT_EQ(*ParseDeadline("5s"), absl::Seconds(5));
  EXPECT_FALSE(ParseDeadline("0s").ok());
  EXPECT_EQ(*ParseDeadline("8760h"), absl::Hours(8760));
  EXPECT_EQ(ParseDeadline("99999999h").status().message(),
            "deadline '99999999h' is more than a year");
}

TEST(FormatTest, RoutesReadAsTheyPrint) {
  for (int route = FERRY_ROUTE_ANY; route <= FERRY_ROUTE_NCCL; ++route) {
    EXPECT_EQ(*ParseRoute(RouteText(route)), route);
  }
  EXPECT_FALSE(ParseRoute("carrier-pigeon").ok());
}

TEST(FormatTest, ShowsNumbersToPeople) {
  EXPECT_EQ(HumanSize(512), "512 B");
  EXPECT_EQ(HumanSize(65536), "64 KiB");
  EXPECT_EQ(HumanSize(1610612736), "1.50 GiB");
  EXPECT_EQ(HumanCount(0), "0");
  EXPECT_EQ(HumanCount(1234567), "1,234,567");
  EXPECT_DOUBLE_EQ(GigabytesPerSecond(2'000'000'000, absl::Seconds(1)), 2.0);
  EXPECT_EQ(Printable("a\x1b[2Jb\n"), "a\\x1b[2Jb\\x0a");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J \xc3\xa4 \xc2\xa7"),
            "\\x9b2J \xc3\xa4 \xc2\xa7");
  EXPECT_EQ(PrintableLines("a\r\nb\x07\n"), "a\\x0d\nb\\x07\n");
}

// In tables and texts as configurations are printed, and as ferryctl and ferryd read them.
TEST(FormatTest, SizesAreWrittenOneWay) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1023}, uint64_t{1} << 10, uint64_t{256} << 20,
                               uint64_t{3} << 30, uint64_t{5} << 40}) {
    EXPECT_EQ(HumanSize(bytes), FormatSize(bytes));
    EXPECT_EQ(*ParseSize(HumanSize(bytes)), bytes);
  }
}

TEST(FormatTest, TablesAlign) {
  Table table({{"NAME"}, {"BYTES", Table::Align::kRight}});
  table.AddRow({"a", "1"});
  table.AddRow({"longer", "1,000"});
  EXPECT_EQ(table.ToString(), "NAME    BYTES\na           1\nlonger  1,000\n");
}

TEST(StatisticsTest, QuantilesAreSamples) {
  EXPECT_EQ(Median(std::vector<int>{}), 0);
  EXPECT_EQ(Median(std::vector<int>{5, 1, 3}), 3);
  EXPECT_EQ(Quantile(std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.9), 9);
  EXPECT_EQ(Quantile(std::vector<int>{1, 2, 3, 4}, 1.0), 4);
  EXPECT_EQ(Quantile(std::vector<int>{1, 2, 3, 4}, 0.0), 1);
}

TEST(ChecksumTest, IsSha256) {
  EXPECT_EQ(Sha256Of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 parts;
  parts.Add("a");
  parts.Add("bc");
  EXPECT_EQ(parts.Finish(), Sha256Of("abc"));
}

}  // namespace
}  // namespace ferry::tools
