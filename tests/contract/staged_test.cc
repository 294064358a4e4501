// SPDX-License-Identifier: Apache-2.0
// GPUs by TCP and by UCX through host memory: copies that take long or fail at either end, and
// memory that is short. Both ends are in this process, so that holding copies back holds both ends'
// back.
#include <fake_cuda.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/status.h"
#include "tests/contract/rig.h"

namespace ferry {
namespace {

constexpr uint64_t kArena = uint64_t{192} << 20;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kMessage = HostStaging::kBlock;
constexpr size_t kSlots = 4;  // of the rig's staging, in each direction

absl::Status Why() {
  return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the test wants it to end");
}

uint64_t Launches() {
  fake_cuda_counts counts;
  fake_cuda_get_counts(&counts);
  return counts.launches;
}

class Staged : public ::testing::TestWithParam<const char*> {
 protected:
  Staged() {
    FillRandom(rig_->arena(0), kArena, 1);
    std::memset(rig_->arena(1), 0xEE, kArena);
  }
  ~Staged() override {
    fake_cuda_hold_copies(0);
    fake_cuda_configure("fail_copy=0;copy_us=0");
  }
  static Move Same(uint64_t id, uint64_t offset, uint64_t bytes) {
    return {id, {{offset, bytes}}, {{offset, bytes}}};
  }
  bool Arrived(uint64_t offset, uint64_t bytes) {
    return std::memcmp(rig_->arena(1) + offset, rig_->arena(0) + offset, bytes) == 0;
  }
  void ExpectMoved(uint64_t id, uint64_t offset, uint64_t bytes) {
    const absl::Status status = rig_->Await(0, id);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(Arrived(offset, bytes));
  }
  // What was launched has got as far as it can.
  void Settle() {
    for (int i = 0; i < 20; ++i) {
      for (int end : {0, 1}) rig_->lane(end).RunAndWait([] {});
    }
  }

  std::unique_ptr<Rig> rig_ = Rig::Make(GetParam(), kArena);
};

INSTANTIATE_TEST_SUITE_P(Over, Staged, ::testing::Values("tcp_gpu", "ucx_tcp_gpu", "ucx_shm_gpu"),
                         [](const auto& info) { return std::string(info.param); });

// Where what was sent may come before it is known what it is.
using StagedByUcx = Staged;
INSTANTIATE_TEST_SUITE_P(Over, StagedByUcx, ::testing::Values("ucx_tcp_gpu", "ucx_shm_gpu"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Staged, OpsAreAnsweredWhenTheirBytesAreThere) {
  fake_cuda_hold_copies(1);
  rig_->Launch(0, {Same(1, 0, 3 * kMessage)});
  Settle();
  EXPECT_EQ(rig_->answers(0).count() + rig_->answers(1).count(), 0u);
  fake_cuda_hold_copies(0);
  ExpectMoved(1, 0, 3 * kMessage);
}

TEST_P(Staged, SlowCopiesOfBothDirectionsAtOnce) {
  fake_cuda_configure("copy_us=2000");
  constexpr uint64_t kBytes = 10 * kMessage + 12345;
  FillRandom(rig_->arena(1) + kArena / 2, kBytes, 2);
  rig_->Launch(0, {Same(1, 0, kBytes)});
  rig_->Launch(1, {Same(2, kArena / 2, kBytes)});
  ExpectMoved(1, 0, kBytes);
  EXPECT_TRUE(rig_->Await(1, 2).ok());
  EXPECT_TRUE(Arrived(kArena / 2, kBytes));
}

// More than all memory of a direction at once would hold: what nobody has sent takes none.
TEST_P(Staged, ReceivesThatNobodySendsToKeepNoMemoryFromOthers) {
  constexpr uint64_t kOps = 3 * kSlots;
  std::vector<Move> moves;
  for (uint64_t i = 0; i < kOps; ++i) moves.push_back(Same(i + 1, i * kMessage, kMessage));
  rig_->LaunchHalf(1, 0, moves);
  for (uint64_t i = kOps; i-- > 0;) {
    rig_->LaunchHalf(0, 0, {moves[i]});
    ExpectMoved(i + 1, i * kMessage, kMessage);
  }
}

// As is what was sent to who is not there yet: small ones, which UCX sends without being asked.
TEST_P(StagedByUcx, WhatComesTooEarlyHoldsNobodyUp) {
  constexpr uint64_t kEarly = 8;
  std::vector<Move> early;
  for (uint64_t i = 0; i < kEarly; ++i) early.push_back(Same(100 + i, i * 4096, 4096));
  rig_->LaunchHalf(0, 0, early);
  for (uint64_t id = 1; id <= 20; ++id) {
    rig_->Launch(0, {Same(id, kMiB * id, kMiB)});
    ExpectMoved(id, kMiB * id, kMiB);
  }
  rig_->LaunchHalf(1, 0, early);
  for (uint64_t i = 0; i < kEarly; ++i) ExpectMoved(100 + i, i * 4096, 4096);
}

TEST_P(Staged, ManyPiecesAreOneLaunchAtEachEnd) {
  std::vector<Range> from, to;
  for (uint64_t i = 0; i < 500; ++i) {
    from.push_back({ArenaId(1), i * 4096, 2048});
    to.push_back({ArenaId(1), i * 8192, 2048});
  }
  const uint64_t before = Launches();
  rig_->Launch(0, {{1, Layout(from), Layout(to)}});
  ASSERT_TRUE(rig_->Await(0, 1).ok());
  EXPECT_EQ(Launches() - before, 2u);
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_EQ(std::memcmp(rig_->arena(1) + i * 8192, rig_->arena(0) + i * 4096, 2048), 0) << i;
  }
}

// More pieces than a step takes: messages that are copied in parts.
TEST_P(Staged, AHundredThousandPieces) {
  constexpr uint64_t kBlocks = 100'000;
  rig_->Launch(0, {{1, *Layout::Strided(ArenaId(1), 1, 1, 3, kBlocks), {{5, kBlocks}}},
                   {2, {{kMiB, kBlocks}}, *Layout::Strided(ArenaId(1), kMiB, 1, 3, kBlocks)}});
  ASSERT_TRUE(rig_->Await(0, 1).ok());
  ASSERT_TRUE(rig_->Await(0, 2).ok());
  for (uint64_t i = 0; i < kBlocks; ++i) {
    ASSERT_EQ(rig_->arena(1)[5 + i], rig_->arena(0)[1 + 3 * i]) << i;
    ASSERT_EQ(rig_->arena(1)[kMiB + 3 * i], rig_->arena(0)[kMiB + i]) << i;
  }
}

// Also often enough to have lost all memory, if any were lost.
TEST_P(Staged, ARefusedCopyFailsItsOpAndNoOther) {
  uint64_t id = 0;
  for (int round = 0; round < 12; ++round) {
    // The first copies are the source's: of three messages one, two, or all three were begun when
    // it is refused. The last ones are the destination's.
    fake_cuda_configure(("fail_copy=" + std::to_string(1 + round % 6)).c_str());
    const uint64_t bytes = 3 * kMessage;
    rig_->Launch(0, {Same(++id, 0, bytes)});
    // What the engines of two daemons do: who hears that the other end failed ends its own.
    const int failed = [&] {
      while (true) {
        for (int end : {0, 1}) {
          const auto order = rig_->answers(end).order();
          if (std::find(order.begin(), order.end(), TransferId(id)) == order.end()) continue;
          if (!rig_->answers(end).Await(TransferId(id)).ok()) return end;
        }
        std::this_thread::yield();
      }
    }();
    const absl::Status status = rig_->answers(failed).Await(TransferId(id));
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"));
    if (failed == 0) rig_->Abort(1, id, Why());
    rig_->answers(0).Await(TransferId(id)).IgnoreError();
    rig_->answers(1).Await(TransferId(id)).IgnoreError();
    fake_cuda_configure("fail_copy=0");
    const uint64_t at = (1 + static_cast<uint64_t>(round)) * 5 * kMessage % (kArena / 2);
    rig_->Launch(0, {Same(++id, at, 5 * kMessage)});
    ExpectMoved(id, at, 5 * kMessage);
  }
  rig_->ExpectAnswered(0, id);
  rig_->ExpectAnswered(1, id);
}

TEST_P(Staged, AnAbortIsAnsweredWhenNothingIsCopied) {
  fake_cuda_hold_copies(1);
  rig_->Launch(0, {Same(1, 0, 8 * kMessage), Same(2, 16 * kMessage, 64)});
  Settle();
  rig_->Abort(0, 1, Why());
  rig_->Abort(1, 1, Why());  // it has begun nothing
  Settle();
  EXPECT_EQ(ReasonOf(rig_->answers(1).Await(TransferId(1))), Reason::kCancelled);
  EXPECT_EQ(rig_->answers(0).count(), 0u) << "its bytes are still copied from";
  fake_cuda_hold_copies(0);
  EXPECT_EQ(ReasonOf(rig_->answers(0).Await(TransferId(1))), Reason::kCancelled);
  ExpectMoved(2, 16 * kMessage, 64);  // nothing of 1 was with UCX: the connection stays
  rig_->Launch(0, {Same(3, 0, 12 * kMessage)});
  ExpectMoved(3, 0, 12 * kMessage);
}

TEST_P(Staged, TakingTheLaneDownWaitsForCopies) {
  fake_cuda_configure("copy_us=3000");
  rig_->Launch(0, {Same(1, 0, kArena)});
  fake_cuda_counts before, after;
  // More than was copied out if nothing had been copied in: all slots of both ends are full then.
  do {
    std::this_thread::yield();
    fake_cuda_get_counts(&before);
  } while (before.bytes_copied <= 2 * kSlots * kMessage);
  rig_->TakeDown(1);
  rig_->ExpectAnswered(1, 1);
  rig_->TakeDown(0);
  fake_cuda_get_counts(&before);
  rig_->lane(1).RunAndWait([] {});
  fake_cuda_get_counts(&after);
  EXPECT_EQ(after.bytes_copied, before.bytes_copied);
}

}  // namespace
}  // namespace ferry
