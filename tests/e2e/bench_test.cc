// SPDX-License-Identifier: Apache-2.0
// ferryctl bench: every case with odd counts and sizes, and that it notices what is not as it was
// sent.
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/support/fixtures.h"
#include "tools/ferryctl/bench_end.h"
#include "tools/ferryctl/bench_pair.h"

namespace ferry::testing {
namespace {

class BenchCaseTest : public ClusterTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void Run(std::vector<std::string> more) {
    std::vector<std::string> arguments = {FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(),
                                          "bench"};
    for (std::string& word : std::vector<std::string>(absl::StrSplit(GetParam(), ' '))) {
      arguments.push_back(std::move(word));
    }
    more.insert(more.end(), {"--iterations", "2"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = RunProgram(arguments, 3 * kSoon);
    EXPECT_EQ(finished.status, 0) << absl::StrJoin(arguments, " ") << "\n" << finished.output;
  }
};

TEST_P(BenchCaseTest, GoesWellWhereNothingIsLost) {
  Start();
  Run({});                                             // within a daemon
  Run({"--peer-runtime-dir", node(1).runtime_dir()});  // and between two
}

INSTANTIATE_TEST_SUITE_P(
    OddCountsAndSizes, BenchCaseTest,
    ::testing::Values("latency --size 13", "latency --size 1 --count 3",
                      "latency --prepared --size 13", "latency --prepared --size 13 --count 5",
                      "bandwidth --size 1000003", "bandwidth --size 999 --count 3 --prepared",
                      "many-small --size 999 --count 17", "many-small --size 9 --count 1025",
                      "rate --count 2", "rate --count 3 --size 5", "rate --count 1023 --size 7",
                      "rate --count 1025 --stream", "rate --count 4095",
                      "rate --count 4097 --unary", "rate --count 5 --prepared",
                      "rate --count 2049 --size 3 --prepared", "memcpy --size 4097 --count 3"),
    [](const auto& info) { return absl::StrCat("Case", info.index); });

class BenchEndTest : public ClusterTest {
 protected:
  tools::BenchEnd Open(tools::End end) {
    tools::SessionOptions options;
    options.client_dir = node(0).client_dir();
    tools::PostTarget target;
    target.end = end;
    target.remote_device = end == tools::End::kSend ? 1 : 0;
    auto opened = tools::BenchEnd::Open(options, target, end == tools::End::kSend ? 0 : 1);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
};

TEST_F(BenchEndTest, EveryByteThatWasMovedCountsAndNoOther) {
  Start({.nodes = 1});
  constexpr uint64_t kBytes = 13;
  tools::BenchEnd sender = Open(tools::End::kSend), receiver = Open(tools::End::kReceive);
  ASSERT_TRUE(sender.MakeArena(8 * kBytes, 0).ok());
  ASSERT_TRUE(receiver.MakeArena(8 * kBytes, 0).ok());
  ASSERT_TRUE(sender.Fill(1).ok());
  ASSERT_TRUE(receiver.PostMany(1, 3, kBytes).ok());
  ASSERT_TRUE(sender.PostMany(1, 3, kBytes).ok());
  ASSERT_TRUE(receiver.Await().ok());
  ASSERT_TRUE(sender.Await().ok());
  const uint64_t sent = *sender.SumOfMoved();
  EXPECT_EQ(*receiver.SumOfMoved(), sent);
  auto* const bytes = static_cast<unsigned char*>(ferry_arena_data(receiver.arena().get()));
  size_t seen = 0;
  for (uint64_t i = 0; i < 8 * kBytes; ++i) {
    bytes[i] ^= 0x80;
    if (*receiver.SumOfMoved() != sent) ++seen;
    bytes[i] ^= 0x80;
  }
  EXPECT_EQ(seen, 3 * kBytes);
}

// Of a pair whose transfers did nothing after the first the bytes of that would still be right.
TEST_F(BenchEndTest, BytesThatHaveNotMovedSinceTheyWereRenewedAreMissed) {
  Start({.nodes = 1});
  constexpr uint64_t kBytes = 1;  // of two that differ in any bit
  constexpr uint64_t kCount = 5;
  tools::BenchPairOptions options;
  options.receiver_command = {FerryctlProgram(), "bench-receiver"};
  options.client_dir = options.peer_client_dir = node(0).client_dir();
  auto pair = tools::BenchPair::Open(options);
  ASSERT_TRUE(pair.ok()) << pair.status();
  const auto expect_told = [&](const std::function<absl::Status()>& once) {
    EXPECT_THAT(once(), IsOk());
    EXPECT_THAT(pair->Compare(), IsOk());
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(pair->Renew(), IsOk());
      EXPECT_THAT(pair->Compare(), Is("DATA_LOSS/INTERNAL"));
      EXPECT_THAT(once(), IsOk());
      EXPECT_THAT(pair->Compare(), IsOk());
    }
  };
  ASSERT_TRUE(pair->MakeArenas(kCount * kBytes).ok());
  expect_told([&] { return pair->Run(kCount, kBytes).status(); });
  expect_told([&] { return pair->Stream(kCount, kBytes, 2, 2).status(); });
  ASSERT_TRUE(pair->Prepare(kCount, kBytes).ok());
  expect_told([&] { return pair->Fire().status(); });
  expect_told([&] { return pair->FireMany(3).status(); });
  ASSERT_TRUE(pair->MakeArenas(2 * kBytes).ok());
  ASSERT_TRUE(pair->PreparePing(kBytes).ok());
  expect_told([&] { return pair->Ping(1).status(); });
}

}  // namespace
}  // namespace ferry::testing
