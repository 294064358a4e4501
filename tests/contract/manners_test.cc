// SPDX-License-Identifier: Apache-2.0
// The manners that every transport has; see transfer/transport.h.
#include <fake_cuda.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/status.h"
#include "tests/contract/rig.h"
#include "tests/support/random_layout.h"

namespace ferry {
namespace {

constexpr uint64_t kArenaBytes = uint64_t{96} << 20;

absl::Status Why() {
  return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the test wants it to end");
}

class Manners : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Rig> rig_ = Rig::Make(GetParam(), kArenaBytes);
  std::mt19937_64 random_{1234};

  void Prepare(int from, uint64_t bytes, uint64_t seed) {
    FillRandom(rig_->arena(from), bytes, seed);
    std::memset(rig_->arena(1 - from), 0xEE, bytes);
  }
  // The bytes are there, and nowhere else within the first `bytes` of the arena.
  void ExpectMoved(int from, const std::vector<Move>& moves, uint64_t bytes) {
    std::vector<std::byte> expected(bytes, std::byte{0xEE});
    for (const Move& move : moves) {
      std::vector<std::byte> flat;
      for (size_t i = 0; i < move.source.layout.block_count(); ++i) {
        const Range block = move.source.layout.block(i);
        const std::byte* const begin = rig_->arena(from) + block.offset;
        flat.insert(flat.end(), begin, begin + block.length);
      }
      uint64_t at = 0;
      for (size_t i = 0; i < move.destination.layout.block_count(); ++i) {
        const Range block = move.destination.layout.block(i);
        std::copy_n(flat.begin() + at, block.length, expected.begin() + block.offset);
        at += block.length;
      }
      ASSERT_EQ(at, flat.size());
    }
    ASSERT_TRUE(bytes == 0 || std::memcmp(expected.data(), rig_->arena(1 - from), bytes) == 0);
  }
  // Cuts [0, bytes) into at most `most` ranges of an arena, in a random order.
  Layout RandomRanges(uint64_t bytes, uint64_t most) {
    std::vector<uint64_t> cuts = {0, bytes};
    for (uint64_t i = random_() % most; i > 0; --i) cuts.push_back(random_() % (bytes + 1));
    std::sort(cuts.begin(), cuts.end());
    std::vector<Range> ranges;
    for (size_t i = 1; i < cuts.size(); ++i) {
      ranges.push_back({ArenaId(1), cuts[i - 1], cuts[i] - cuts[i - 1]});
    }
    std::shuffle(ranges.begin(), ranges.end(), random_);
    return Layout(std::move(ranges));
  }
};

INSTANTIATE_TEST_SUITE_P(Over, Manners,
                         ::testing::Values("local", "mapped", "local_gpu", "mapped_gpu", "tcp",
                                           "tcp_gpu", "tcp_gpu_to_host", "ucx_shm", "ucx_tcp",
                                           "ucx_shm_gpu", "ucx_tcp_gpu", "ucx_tcp_gpu_to_host",
                                           "nccl", "relay"),
                         [](const auto& info) { return std::string(info.param); });

// Of transports that launch transfer by transfer: groups have their order and their ends elsewhere.
using MannersOfOne = Manners;
INSTANTIATE_TEST_SUITE_P(Over, MannersOfOne,
                         ::testing::Values("local", "mapped", "local_gpu", "mapped_gpu", "tcp",
                                           "tcp_gpu", "tcp_gpu_to_host", "ucx_shm", "ucx_tcp",
                                           "ucx_shm_gpu", "ucx_tcp_gpu", "ucx_tcp_gpu_to_host",
                                           "relay"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Manners, BytesOfEverySize) {
  uint64_t id = 0;
  for (const uint64_t size :
       {uint64_t{0}, uint64_t{1}, uint64_t{7}, uint64_t{4} << 10, (uint64_t{64} << 10) + 1,
        uint64_t{8} << 20, (uint64_t{65} << 20) + 3}) {
    for (const int from : {0, 1}) {
      const uint64_t window = size + 64;
      Prepare(from, window, size + static_cast<uint64_t>(from));
      const std::vector<Move> moves = {{++id, {{5, size}}, {{13, size}}}};
      rig_->Launch(from, moves);
      const absl::Status status = rig_->Await(from, id);
      ASSERT_TRUE(status.ok()) << size << ": " << status;
      ExpectMoved(from, moves, window);
    }
  }
}

TEST_P(Manners, RandomSplitsAtBothEnds) {
  for (uint64_t id = 1; id <= 40; ++id) {
    const int from = static_cast<int>(id % 2);
    const uint64_t bytes = random_() % (uint64_t{1} << (4 + id / 2));
    Prepare(from, bytes, id);
    const std::vector<Move> moves = {{id, RandomRanges(bytes, 40), RandomRanges(bytes, 40)}};
    rig_->Launch(from, moves);
    const absl::Status status = rig_->Await(from, id);
    ASSERT_TRUE(status.ok()) << status;
    ExpectMoved(from, moves, bytes);
  }
}

TEST_P(Manners, RandomLayoutsOfEveryFormAtBothEnds) {
  for (uint64_t id = 1; id <= 60; ++id) {
    const int from = static_cast<int>(id % 2);
    const uint64_t bytes = random_() % 8 == 0 ? 0 : 720 * (1 + random_() % 500);
    const uint64_t room = 2 * bytes + 4096;
    Prepare(from, room, id);
    const std::vector<Move> moves = {{id, RandomLayout(random_, ArenaId(1), room, bytes),
                                      RandomLayout(random_, ArenaId(2), room, bytes)}};
    rig_->Launch(from, moves);
    const absl::Status status = rig_->Await(from, id);
    ASSERT_TRUE(status.ok()) << status;
    ExpectMoved(from, moves, room);
  }
}

// A paged cache: blocks from anywhere into other places, in one op.
TEST_P(Manners, TenThousandBlocksByTable) {
  constexpr uint64_t kBlock = 4096;
  constexpr uint64_t kBlocks = 10'000;
  Prepare(0, 2 * kBlocks * kBlock, 9);
  Layout ends[2];
  for (Layout& end : ends) {
    std::vector<uint64_t> indices(2 * kBlocks);
    std::iota(indices.begin(), indices.end(), 0);
    std::shuffle(indices.begin(), indices.end(), random_);
    indices.resize(kBlocks);
    end = *Layout::BlockTable(ArenaId(1), 0, kBlock, std::move(indices));
  }
  const std::vector<Move> moves = {{1, ends[0], ends[1]}};
  rig_->Launch(0, moves);
  const absl::Status status = rig_->Await(0, 1);
  ASSERT_TRUE(status.ok()) << status;
  ExpectMoved(0, moves, 2 * kBlocks * kBlock);
}

TEST_P(Manners, AThousandSmallOpsAtOnce) {
  constexpr uint64_t kSize = 65536 - 8;
  Prepare(0, 1000 * 65536, 3);
  std::vector<Move> moves;
  for (uint64_t i = 0; i < 1000; ++i) {
    moves.push_back({i + 1, {{i * 65536, kSize}}, {{(999 - i) * 65536 + 8, kSize}}});
  }
  // The two ends need not agree on the order.
  rig_->LaunchHalf(1, 0, moves);
  std::shuffle(moves.begin(), moves.end(), random_);
  if (rig_->two_sided()) rig_->LaunchHalf(0, 0, moves);
  for (const Move& move : moves) {
    const absl::Status status = rig_->Await(0, move.id);
    ASSERT_TRUE(status.ok()) << status;
  }
  rig_->ExpectAnswered(1, 1000);
  rig_->ExpectAnswered(0, rig_->two_sided() ? 1000 : 0);
  ExpectMoved(0, moves, 1000 * 65536);
}

TEST_P(Manners, BothDirectionsAtOnce) {
  constexpr uint64_t kSize = uint64_t{3} << 20;
  std::vector<Move> moves[2];
  // Each end sends from its lower half into the other's upper one.
  constexpr uint64_t kHalf = kArenaBytes / 2;
  for (const int end : {0, 1}) {
    FillRandom(rig_->arena(end), kHalf, static_cast<uint64_t>(end) + 5);
    std::memset(rig_->arena(end) + kHalf, 0xEE, kHalf);
    for (uint64_t i = 0; i < 12; ++i) {
      moves[end].push_back({1 + i + 100 * static_cast<uint64_t>(end),
                            {{i * kSize, kSize}},
                            {{kHalf + (11 - i) * kSize, kSize}}});
    }
  }
  std::thread other([&] { rig_->Launch(1, moves[1]); });
  rig_->Launch(0, moves[0]);
  other.join();
  for (const int from : {0, 1}) {
    for (const Move& move : moves[from]) {
      const absl::Status status = rig_->Await(from, move.id);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(std::memcmp(rig_->arena(from) + move.source.layout.block(0).offset,
                            rig_->arena(1 - from) + move.destination.layout.block(0).offset, kSize),
                0);
    }
  }
}

// Whatever an abort meets, each half is answered once, OK or with its reason, and what follows
// works.
TEST_P(MannersOfOne, AbortBeforeAndAfterTheStart) {
  uint64_t id = 0;
  for (const uint64_t size : {uint64_t{100}, uint64_t{20} << 20}) {
    for (int round = 0; round < 6; ++round) {
      Prepare(0, size, ++id);
      const std::vector<Move> moves = {{id, {{0, size}}, {{0, size}}}};
      rig_->LaunchHalf(1, 0, moves);
      if (!rig_->two_sided()) {
        rig_->Abort(1, id, Why());
      } else if (round % 2 == 0) {  // the receive has nobody to come
        rig_->Abort(1, id, Why());
        EXPECT_EQ(ReasonOf(rig_->answers(1).Await(TransferId(id))), Reason::kCancelled);
        rig_->LaunchHalf(0, 0, moves);  // comes late: must not be left lying
      } else {
        rig_->LaunchHalf(0, 0, moves);
        rig_->Abort(1, id, Why());
      }
      const absl::Status status = rig_->answers(1).Await(TransferId(id));
      if (status.ok()) {
        ASSERT_EQ(std::memcmp(rig_->arena(0), rig_->arena(1), size), 0);
      } else {
        EXPECT_EQ(ReasonOf(status), Reason::kCancelled) << status;
      }
      if (rig_->two_sided()) rig_->answers(0).AwaitCount(id);
      rig_->Abort(1, id, Why());       // of one that is over
      rig_->Abort(1, 999'999, Why());  // of one that never was
    }
  }
  Prepare(0, 1 << 20, 77);
  const std::vector<Move> moves = {{++id, {{0, 1 << 20}}, {{0, 1 << 20}}}};
  rig_->Launch(0, moves);
  const absl::Status status = rig_->Await(0, id);
  ASSERT_TRUE(status.ok()) << status;
  ExpectMoved(0, moves, 1 << 20);
  rig_->ExpectAnswered(1, id);
}

// Ops that are out when their transport goes are answered.
TEST_P(MannersOfOne, TakenDownWithOpsOut) {
  Prepare(0, 60 << 20, 9);
  std::vector<Move> moves;
  for (uint64_t i = 0; i < 60; ++i) {
    moves.push_back({i + 1, {{i << 20, 1 << 20}}, {{i << 20, 1 << 20}}});
  }
  rig_->LaunchHalf(1, 0, moves);
  Answers& answers = rig_->answers(1);
  const bool two_sided = rig_->two_sided();
  rig_->TakeDown(1);
  EXPECT_EQ(answers.count(), 60u);
  if (two_sided) {
    EXPECT_FALSE(answers.Await(TransferId(1)).ok());
  }
}

TEST_P(MannersOfOne, SmallOpsAndOtherSessionsDoNotWaitForALargeOne) {
  constexpr uint64_t kLarge = uint64_t{80} << 20;
  const TransferId large = MakeTransferId(SessionId(1), 1);
  const TransferId small = MakeTransferId(SessionId(1), 2);
  const TransferId other = MakeTransferId(SessionId(2), 1);
  rig_->Launch(0, {{large.value(), {{0, kLarge}}, {{0, kLarge}}},
                   {small.value(), {{kLarge, 65536}}, {{kLarge, 65536}}},
                   {other.value(), {{kLarge + 65536, 2 << 20}}, {{kLarge + 65536, 2 << 20}}}});
  rig_->answers(1).AwaitCount(3);
  EXPECT_EQ(rig_->answers(1).order().back(), large);
  EXPECT_EQ(rig_->answers(1).order().front(), small);
}

TEST_P(MannersOfOne, ASessionsOwnOpsGoByPriority) {
  constexpr uint64_t kSize = uint64_t{24} << 20;
  std::vector<Move> moves;
  for (uint64_t i = 0; i < 3; ++i) {
    moves.push_back({i + 1, {{i * kSize, kSize}}, {{i * kSize, kSize}}});
    moves.back().priority = static_cast<int32_t>(i) * 10 - 10;
  }
  rig_->Launch(0, moves);
  rig_->answers(1).AwaitCount(3);
  const std::vector<TransferId> expected = {TransferId(3), TransferId(2), TransferId(1)};
  EXPECT_EQ(rig_->answers(1).order(), expected);
}

TEST_P(Manners, ManyOpsOfRandomSizes) {
  // Large ones among small ones: none is lost, and each gets its own bytes.
  for (uint64_t round = 0; round < 3; ++round) {
    Prepare(0, kArenaBytes, round);
    std::vector<Move> moves;
    for (uint64_t at = 0, id = round * 100'000; moves.size() < 3000;) {
      const uint64_t size = random_() % (random_() % 200 == 0 ? 4'000'000 : 9'000);
      if (at + size > kArenaBytes) break;
      moves.push_back({++id, {{at, size}}, {{at, size}}});
      at += size;
    }
    rig_->Launch(0, moves);
    for (const Move& move : moves) {
      const absl::Status status = rig_->Await(0, move.id);
      ASSERT_TRUE(status.ok()) << status;
    }
    ExpectMoved(0, moves, kArenaBytes);
  }
}

// More than 32 bits of bytes in one op.
class Large : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, Large,
                         ::testing::Values("local", "tcp", "tcp_gpu", "ucx_tcp", "ucx_tcp_gpu",
                                           "nccl", "relay"),
                         [](const auto& info) { return std::string(info.param); });
TEST_P(Large, OverTwoGiB) {
  constexpr uint64_t kSize = (uint64_t{2} << 30) + 4097;
  fake_cuda_configure("memory_mib=2560");
  std::unique_ptr<Rig> rig = Rig::Make(GetParam(), kSize);
  // Every page says which one it is; the rest is zeros on both sides.
  for (uint64_t at = 0; at + 8 <= kSize; at += 4096) {
    std::memcpy(rig->arena(0) + at, &at, sizeof(at));
  }
  rig->arena(0)[kSize - 1] = std::byte{0x77};
  rig->Launch(0, {{1, {{0, kSize}}, {{0, kSize}}}});
  const absl::Status status = rig->Await(0, 1);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(std::memcmp(rig->arena(0), rig->arena(1), kSize), 0);
}

// More pieces than a step takes.
TEST(Local, AMillionBlocksOfAByte) {
  CopyRig rig(/*mapped=*/false, 2 * kMaxBlocks);
  FillRandom(rig.arena(0), 2 * kMaxBlocks, 1);
  rig.Launch(0, {{1, *Layout::Strided(ArenaId(1), 1, 1, 2, kMaxBlocks), {{0, kMaxBlocks}}}});
  const absl::Status status = rig.Await(0, 1);
  ASSERT_TRUE(status.ok()) << status;
  for (uint64_t i = 0; i < kMaxBlocks; ++i) ASSERT_EQ(rig.arena(1)[i], rig.arena(0)[1 + 2 * i]);
}

TEST(Mapped, ARevokedLinkIsNeverSuccess) {
  CopyRig rig(/*mapped=*/true, 1 << 20);
  FillRandom(rig.arena(0), 1 << 20, 1);
  rig.Launch(0, {{1, {{0, 4096}}, {{0, 4096}}}});
  EXPECT_TRUE(rig.Await(0, 1).ok());
  rig.page(0).Revoke();
  rig.Launch(0, {{2, {{0, 4096}}, {{0, 4096}}}});
  EXPECT_EQ(ReasonOf(rig.Await(0, 2)), Reason::kPeerUnreachable);
  // The other direction is the other side's to revoke.
  rig.Launch(1, {{3, {{0, 4096}}, {{0, 4096}}}});
  EXPECT_TRUE(rig.Await(1, 3).ok());
}

// The source changes its bytes only after it revoked: an op that says OK has the old ones.
TEST(Mapped, BytesThatChangeAfterRevokeAreNeverGood) {
  constexpr uint64_t kSize = uint64_t{4} << 20;
  int good = 0;
  for (int round = 0; round < 40; ++round) {
    CopyRig rig(/*mapped=*/true, kSize);
    std::memset(rig.arena(0), 0x11, kSize);
    std::memset(rig.arena(1), 0xEE, kSize);
    std::thread source([&] {
      for (int spin = 0; spin < round * 2000; ++spin) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
      rig.page(0).Revoke();
      std::memset(rig.arena(0), 0x22, kSize);
    });
    rig.Launch(0, {{1, {{0, kSize}}, {{0, kSize}}}});
    const absl::Status status = rig.Await(0, 1);
    source.join();
    if (!status.ok()) continue;
    ++good;
    ASSERT_EQ(std::count(rig.arena(1), rig.arena(1) + kSize, std::byte{0x11}),
              static_cast<ptrdiff_t>(kSize));
  }
  RecordProperty("good", good);
}

}  // namespace
}  // namespace ferry
