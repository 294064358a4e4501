// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/nccl_transport.h"

#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "transfer/nccl/group_plan.h"
#include "two_ranks.h"

namespace ferry {
namespace {

constexpr uint64_t kArena = uint64_t{96} << 20;

class NcclTransportTest : public testing::Test {
 protected:
  NcclTransportTest() : two_(kArena) {
    const auto [own, other] = two_.Open();
    EXPECT_TRUE(own.ok()) << own;
    EXPECT_TRUE(other.ok()) << other;
    Fill(0, 1);
    Fill(1, 2);
  }
  ~NcclTransportTest() override {
    if (reaped_) return;
    Reap();
  }
  void Reap() {
    reaped_ = true;
    for (int end : {0, 1}) two_.Reap(end, Why());
  }
  static absl::Status Why() {
    return Error(absl::StatusCode::kAborted, Reason::kCommAborted, "the test wants it");
  }
  void Fill(int end, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (uint64_t at = 0; at < kArena; at += 8) {
      const uint64_t value = random();
      memcpy(two_.arena(end) + at, &value, 8);
    }
  }
  static Layout Ranges(std::initializer_list<Range> ranges) { return Layout(ranges); }
  static Layout One(uint64_t offset, uint64_t bytes) {
    return Layout({Range{ArenaId(1), offset, bytes}});
  }
  std::string Flat(int end, const Layout& layout) {
    std::string bytes;
    for (size_t i = 0; i < layout.block_count(); ++i) {
      const Range block = layout.block(i);
      bytes.append(reinterpret_cast<const char*>(two_.arena(end)) + block.offset, block.length);
    }
    return bytes;
  }

  TwoRanks two_;
  bool reaped_ = false;
};

TEST_F(NcclTransportTest, AGroupCarriesBothDirections) {
  const Layout low = One(5, 1 << 20), high = One(3 << 20, 1 << 20);
  const std::string there = Flat(0, low), back = Flat(1, One(0, 4096));
  two_.Launch(0, 1, {two_.Part(0, true, low), two_.Part(0, false, One(8 << 20, 4096))});
  two_.Launch(1, 1, {two_.Part(1, false, high), two_.Part(1, true, One(0, 4096))});
  EXPECT_TRUE(two_.answers(0).Await(1).ok());
  EXPECT_TRUE(two_.answers(1).Await(1).ok());
  EXPECT_TRUE(Flat(1, high) == there);
  EXPECT_TRUE(Flat(0, One(8 << 20, 4096)) == back);
}

TEST_F(NcclTransportTest, LayoutsOfEveryFormAndSizeMeet) {
  std::mt19937_64 random(3);
  for (uint64_t group = 1; group <= 60; ++group) {
    std::vector<GroupPart> parts[2];
    struct Moved {
      bool to_low;
      Layout destination;
      std::string bytes;
    };
    std::vector<Moved> moved;
    uint64_t at = 0;
    for (uint64_t i = random() % 20; i > 0; --i) {
      const uint64_t bytes = random() % (i % 5 == 0 ? 3 << 20 : 9000);
      const bool to_low = random() % 2 == 0;
      // Each end cuts the same bytes in its own way, in a window of its own.
      const auto cut = [&] {
        std::vector<Range> ranges;
        for (uint64_t left = bytes, from = at; left > 0;) {
          const uint64_t length = random() % 3 == 0 ? left : 1 + random() % left;
          from += random() % 50;
          ranges.push_back({ArenaId(1), from, length});
          from += length;
          left -= length;
          if (ranges.size() == 40 && left > 0) {
            ranges.push_back({ArenaId(1), from + 1, left});
            break;
          }
        }
        return Layout(std::move(ranges));
      };
      const Layout low = cut(), high = cut();
      at += bytes + 4096;
      parts[0].push_back(two_.Part(0, !to_low, low));
      parts[1].push_back(two_.Part(1, to_low, high));
      moved.push_back({to_low, to_low ? low : high, Flat(to_low ? 1 : 0, to_low ? high : low)});
    }
    for (int end : {0, 1}) two_.Launch(end, group, std::move(parts[end]));
    for (int end : {0, 1}) ASSERT_TRUE(two_.answers(end).Await(group).ok());
    for (const Moved& one : moved) {
      ASSERT_TRUE(Flat(one.to_low ? 0 : 1, one.destination) == one.bytes) << "group " << group;
    }
  }
}

TEST_F(NcclTransportTest, SmallPiecesAreOneCopyAndOneOperation) {
  fake_cuda_counts before, after;
  fake_cuda_get_counts(&before);
  std::vector<GroupPart> parts[2];
  for (uint64_t i = 0; i < 1000; ++i) {
    parts[0].push_back(two_.Part(0, true, One(i * 65536, 32768)));
    parts[1].push_back(two_.Part(1, false, One(i * 40000, 32768)));
  }
  std::string expected;
  for (uint64_t i = 0; i < 1000; ++i) expected += Flat(0, One(i * 65536, 32768));
  for (int end : {0, 1}) two_.Launch(end, 1, std::move(parts[end]));
  for (int end : {0, 1}) ASSERT_TRUE(two_.answers(end).Await(1).ok());
  std::string got;
  for (uint64_t i = 0; i < 1000; ++i) got += Flat(1, One(i * 40000, 32768));
  EXPECT_TRUE(got == expected);
  fake_cuda_get_counts(&after);
  EXPECT_EQ(after.launches - before.launches, 2u);  // a gather there, a scatter here
}

TEST_F(NcclTransportTest, MorePiecesThanATableHoldsTakeTurns) {
  constexpr uint64_t kBlocks = 10 * CudaStream::kPieces, kBlock = 48;
  const Layout from = *Layout::Strided(ArenaId(1), 0, kBlock, 64, kBlocks);
  const Layout to = *Layout::Strided(ArenaId(1), 3, kBlock, 56, kBlocks);
  const std::string expected = Flat(0, from);
  two_.Launch(0, 1, {two_.Part(0, true, from)});
  two_.Launch(1, 1, {two_.Part(1, false, to)});
  for (int end : {0, 1}) ASSERT_TRUE(two_.answers(end).Await(1).ok());
  EXPECT_TRUE(Flat(1, to) == expected);
}

TEST_F(NcclTransportTest, ChunksOfOneTransferArriveInTheirPlaces) {
  const Layout from = *Layout::Strided(ArenaId(1), 0, 1000, 1500, 3000);
  const Layout to = One(7, from.bytes());
  const std::string expected = Flat(0, from);
  uint64_t group = 0;
  for (uint64_t at = 0; at < from.bytes(); at += 777'777) {
    ++group;
    two_.Launch(0, group, {two_.Part(0, true, from, at, 777'777)});
    two_.Launch(1, group, {two_.Part(1, false, to, at, 777'777)});
  }
  for (uint64_t i = 1; i <= group; ++i) {
    for (int end : {0, 1}) ASSERT_TRUE(two_.answers(end).Await(i).ok());
  }
  EXPECT_TRUE(Flat(1, to) == expected);
}

TEST_F(NcclTransportTest, AGroupOfNothingIsOver) {
  for (int end : {0, 1}) two_.Launch(end, 1, {two_.Part(end, end == 0, Layout())});
  for (int end : {0, 1}) EXPECT_TRUE(two_.answers(end).Await(1).ok());
}

TEST_F(NcclTransportTest, WhatNobodyMeetsIsAnsweredOnlyWhenItIsAborted) {
  two_.Launch(0, 1, {two_.Part(0, true, One(0, 4096))});
  two_.Launch(0, 2, {two_.Part(0, false, One(0, 4096))});
  for (int i = 0; i < 10; ++i) two_.lane(0).RunAndWait([] {});
  EXPECT_EQ(two_.answers(0).count(), 0u);
  Reap();
  for (uint64_t group : {1, 2}) EXPECT_EQ(two_.answers(0).Await(group), Why());
}

// The bytes of somebody else's earlier group are still in staging.
TEST_F(NcclTransportTest, AnAbortedGroupBringsNobodyElsesBytes) {
  std::vector<GroupPart> parts[2];
  for (uint64_t i = 0; i < 8; ++i) {
    parts[0].push_back(two_.Part(0, true, One(i * 8192, 4096)));
    parts[1].push_back(two_.Part(1, false, One(i * 8192, 4096)));
  }
  for (int end : {0, 1}) two_.Launch(end, 1, std::move(parts[end]));
  for (int end : {0, 1}) ASSERT_TRUE(two_.answers(end).Await(1).ok());
  const std::string secret = Flat(1, One(0, 4096));
  std::vector<GroupPart> alone;
  for (uint64_t i = 0; i < 8; ++i) {
    alone.push_back(two_.Part(1, false, One((uint64_t{40} << 20) + i * 8192, 4096)));
  }
  two_.Launch(1, 2, std::move(alone));
  Reap();
  EXPECT_EQ(two_.answers(1).Await(2), Why());
  for (uint64_t i = 0; i < 8; ++i) {
    EXPECT_FALSE(Flat(1, One((uint64_t{40} << 20) + i * 8192, 4096)) == secret);
  }
}

}  // namespace
}  // namespace ferry
