// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/echo.h"
#include "bench/network_peers.h"
#include "bench/report.h"
#include "tools/ferryctl/bench_end.h"
#include "tools/ferryctl/child_process.h"
#include "tools/ferryctl/host_copy.h"

namespace ferry::bench {
namespace {

using ::testing::HasSubstr;

TEST(ReportTest, AppliesEachBoundInItsDirection) {
  Row row;
  row.name = "256 MiB mapped";
  row.unit = "GB/s";
  row.warm = 9;
  row.peer = "memcpy";
  row.peer_warm = 10;
  row.target = 0.9;
  EXPECT_TRUE(row.passed());
  row.warm = 8;
  EXPECT_FALSE(row.passed());
  row.at_most = true;
  EXPECT_TRUE(row.passed());

  Row absolute;
  absolute.name = "memory";
  absolute.unit = "bytes";
  absolute.warm = 3000;
  absolute.at_most = true;
  absolute.target = 2048;
  EXPECT_FALSE(absolute.passed());

  Report report;
  report.Add(row);
  report.Add(absolute);
  EXPECT_THAT(report.ToTable(), HasSubstr("0.80    <= 0.9"));
  EXPECT_THAT(report.ToTable(), HasSubstr("<= 2,048  FAIL"));
  EXPECT_THAT(report.ToJson("c", "m"), HasSubstr("\"against_cold\": null"));
}

TEST(UcxPerftestTest, ReadsTheLastLine) {
  EXPECT_NEAR(ParseUcxPerftest(
                  "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,"
                  "overall_mr\n   5,0.236,110972.214,110972.214,2306.88,2306.88,9,9\n"),
              2.4189, 0.001);
  EXPECT_EQ(ParseUcxPerftest("connection refused\n"), 0);
}

TEST(RawTcpTest, MovesEverything) {
  RawTcp raw(8 << 20);
  auto elapsed = raw.Run();
  ASSERT_TRUE(elapsed.ok()) << elapsed.status();
  EXPECT_GT(*elapsed, absl::ZeroDuration());
}

TEST(ProcTest, TellsOurOwnMemoryAndTime) {
  auto bytes = ResidentBytes(getpid());
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_GT(*bytes, 1u << 20);
  auto time = CpuTime(getpid());
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_FALSE(ResidentBytes(-1).ok());
}

TEST(HostCopyTest, CopiesWhateverTheSizeAndThreads) {
  for (size_t bytes : {size_t{4096}, size_t{100'003}}) {
    for (int threads : {1, 2, 3}) {
      tools::Pages from(bytes);
      for (size_t i = 0; i < bytes; ++i) from.data()[i] = static_cast<std::byte>(i * 7);
      tools::Pages to(bytes);
      tools::TimeStreamingCopy(to.data(), from.data(), bytes, threads);
      EXPECT_TRUE(std::equal(to.data(), to.data() + bytes, from.data()))
          << bytes << " by " << threads;
    }
  }
}

TEST(ChildProcessTest, TellsWhatItPrintedAndHowItEnded) {
  auto text = tools::RunAndRead({{"sh", "-c", "echo $WORD"}, {"WORD=ferry"}});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "ferry\n");
  EXPECT_THAT(std::string(tools::RunAndRead({{"sh", "-c", "echo no; exit 3"}}).status().message()),
              HasSubstr("ended with 3: no"));
  EXPECT_EQ(tools::RunAndRead({{"/no/such/program"}}).status().code(), absl::StatusCode::kNotFound);
}

TEST(NumberKeyTest, IsBigEndian) {
  EXPECT_EQ(tools::NumberKey(0x0102), std::string("\0\0\0\0\0\0\x01\x02", 8));
}

}  // namespace
}  // namespace ferry::bench
