// SPDX-License-Identifier: Apache-2.0
// ferryctl bench: every case with odd counts and sizes, and that it notices what is not as it was
// sent.
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/support/fixtures.h"
#include "tests/support/sanitizer.h"
#include "tools/ferryctl/bench_end.h"
#include "tools/ferryctl/bench_pair.h"

namespace ferry::testing {
namespace {

class BenchCaseTest : public ClusterTest, public ::testing::WithParamInterface<const char*> {
 protected:
  // `environment`: NAME=VALUE each.
  Finished Bench(const std::vector<std::string>& more,
                 const std::vector<std::string>& environment = {}) {
    std::vector<std::string> arguments = {"/usr/bin/env"};
    arguments.insert(arguments.end(), environment.begin(), environment.end());
    arguments.insert(arguments.end(),
                     {FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "bench"});
    for (std::string& word : std::vector<std::string>(absl::StrSplit(GetParam(), ' '))) {
      arguments.push_back(std::move(word));
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), {"--iterations", "2"});
    SCOPED_TRACE(absl::StrJoin(arguments, " "));
    return RunProgram(arguments, 3 * kSoon);
  }
  void Run(const std::vector<std::string>& more) {
    const Finished finished = Bench(more);
    EXPECT_EQ(finished.status, 0) << finished.output;
  }
};

TEST_P(BenchCaseTest, GoesWellWhereNothingIsLost) {
  Start();
  Run({});                                             // within a daemon
  Run({"--peer-runtime-dir", node(1).runtime_dir()});  // and between two
}

// What the last iteration is compared by are bytes that no other one has moved.
TEST_P(BenchCaseTest, TransfersThatMoveTheBytesOfBeforeAreTold) {
  if (absl::StartsWith(GetParam(), "memcpy")) return;  // has no transfers
  Start({.nodes = 1});
  const Finished finished = Bench({}, Preloaded(StaleBytesLibrary()));
  EXPECT_NE(finished.status, 0);
  EXPECT_THAT(finished.output, ::testing::HasSubstr("DATA_LOSS"));
}

INSTANTIATE_TEST_SUITE_P(
    OddCountsAndSizes, BenchCaseTest,
    ::testing::Values("latency --size 13", "latency --size 1 --count 3",
                      "latency --prepared --size 13", "latency --prepared --size 13 --count 5",
                      "bandwidth --size 1000003", "bandwidth --size 999 --count 3 --prepared",
                      "many-small --size 999 --count 17", "many-small --size 9 --count 1025",
                      "rate --count 2", "rate --count 3 --size 5", "rate --count 1023 --size 7",
                      "rate --count 1025", "rate --count 4095", "rate --count 4097",
                      "rate --count 5 --prepared", "rate --count 2049 --size 3 --prepared",
                      "memcpy --size 4097 --count 3"),
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

class BenchPairTest : public ClusterTest {
 protected:
  // What only tests may do: bytes that are renewed before they are compared.
  struct Pair : tools::BenchPair {
    explicit Pair(tools::BenchPair&& opened) : tools::BenchPair(std::move(opened)) {}
    using tools::BenchPair::Compare;
    using tools::BenchPair::Renew;
    using tools::BenchPair::sender;
  };

  Pair Open() {
    Start({.nodes = 1});
    tools::BenchPairOptions options;
    options.receiver_command = {FerryctlProgram(), "bench-receiver"};
    options.client_dir = options.peer_client_dir = node(0).client_dir();
    auto pair = tools::BenchPair::Open(options);
    EXPECT_TRUE(pair.ok()) << pair.status();
    return Pair(*std::move(pair));
  }

  static constexpr uint64_t kBytes = 1;  // of two that differ in any bit
  static constexpr uint64_t kCount = 5;
};

// Of each way to move: that it is seen where it does nothing, and where it moves the bytes of
// before.
TEST_F(BenchPairTest, WhatDoesNotMoveTheBytesThatAreThereIsTold) {
  Pair pair = Open();
  const auto expect_told = [&](const std::function<absl::StatusOr<absl::Duration>()>& once) {
    EXPECT_THAT(pair.Check(once).status(), IsOk());
    // Its bytes are at both ends, and it was the last to move.
    const auto nothing = [] { return absl::StatusOr<absl::Duration>(absl::ZeroDuration()); };
    EXPECT_THAT(pair.Check(nothing).status(), Is("DATA_LOSS/INTERNAL"));
    const auto other = [&]() -> absl::StatusOr<absl::Duration> {
      auto took = once();
      // Both have posted, and what is at the receiver was at the sender once.
      EXPECT_THAT(pair.Compare(), IsOk());
      auto* const bytes =
          static_cast<unsigned char*>(ferry_arena_data(pair.sender().arena().get()));
      for (uint64_t i = 0; i < ferry_arena_bytes(pair.sender().arena().get()); ++i) {
        bytes[i] = static_cast<unsigned char>(~bytes[i]);
      }
      return took;
    };
    EXPECT_THAT(pair.Check(other).status(), Is("DATA_LOSS/INTERNAL"));
    EXPECT_THAT(pair.Check(once).status(), IsOk());
  };
  ASSERT_THAT(pair.MakeArenas(kCount * kBytes).status(), IsOk());
  expect_told([&] { return pair.Run(kCount, kBytes); });
  expect_told([&] { return pair.RunBlocks(kCount, kBytes); });
  expect_told([&] { return pair.Stream(kCount, kBytes, 2, 2); });
  ASSERT_THAT(pair.Prepare(kCount, kBytes), IsOk());
  expect_told([&] { return pair.Fire(); });
  expect_told([&] { return pair.FireMany(3); });
  ASSERT_THAT(pair.PrepareBlocks(kCount, kBytes), IsOk());
  expect_told([&] { return pair.Fire(); });
  ASSERT_THAT(pair.MakeArenas(2 * kBytes).status(), IsOk());
  ASSERT_THAT(pair.PreparePing(kBytes), IsOk());
  expect_told([&] { return pair.PingOnce(); });
}

TEST_F(BenchPairTest, WhatMovesOnlyTheFirstTimeIsToldHoweverOften) {
  Pair pair = Open();
  for (const uint64_t times : {2, 3, 7}) {
    ASSERT_THAT(pair.MakeArenas(kCount * kBytes).status(), IsOk());
    uint64_t calls = 0;
    const auto first_alone = [&]() -> absl::StatusOr<absl::Duration> {
      return ++calls == 1 ? pair.Run(kCount, kBytes) : absl::ZeroDuration();
    };
    EXPECT_THAT(pair.Repeat(times, first_alone).status(), Is("DATA_LOSS/INTERNAL"));
    EXPECT_EQ(calls, times);
    const auto took = pair.Repeat(times, [&] { return pair.Run(kCount, kBytes); });
    ASSERT_THAT(took.status(), IsOk());
    EXPECT_EQ(took->size(), times);
  }
}

// Nothing is at the receiver that the next transfer could leave and be right.
TEST_F(BenchPairTest, RenewedBytesAreOthersInEachBit) {
  Pair pair = Open();
  ASSERT_THAT(pair.MakeArenas(kCount * kBytes).status(), IsOk());
  const auto* const sent =
      static_cast<const unsigned char*>(ferry_arena_data(pair.sender().arena().get()));
  for (int round = 0; round < 3; ++round) {
    ASSERT_THAT(pair.Run(kCount, kBytes).status(), IsOk());
    EXPECT_THAT(pair.Compare(), IsOk());
    const std::vector<unsigned char> before(sent, sent + kCount);
    ASSERT_THAT(pair.Renew(), IsOk());
    for (uint64_t i = 0; i < kCount; ++i) EXPECT_EQ(before[i] ^ sent[i], 0xff);
  }
}

// Memory that one pair's arena had may be the next one's.
TEST_F(BenchPairTest, FreshArenasHaveBytesOfTheirOwn) {
  Pair pair = Open();
  std::set<std::string> seen;
  for (int round = 0; round < 4; ++round) {
    ASSERT_THAT(pair.MakeArenas(64).status(), IsOk());
    seen.insert(
        std::string(static_cast<const char*>(ferry_arena_data(pair.sender().arena().get())), 64));
    EXPECT_THAT(pair.CheckFirst([&] { return pair.Run(2, 32); }).status(), IsOk());
    ASSERT_THAT(pair.Renew(), IsOk());
    seen.insert(
        std::string(static_cast<const char*>(ferry_arena_data(pair.sender().arena().get())), 64));
  }
  EXPECT_EQ(seen.size(), 8u);
}

}  // namespace
}  // namespace ferry::testing
