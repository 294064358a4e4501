// SPDX-License-Identifier: Apache-2.0
// What only copies by a GPU's engine can show: they are under way for a while, and fail.
#include <fake_cuda.h>
#include <gmock/gmock.h>

#include <cstring>

#include "base/status.h"
#include "tests/contract/rig.h"

namespace ferry {
namespace {

constexpr uint64_t kArena = uint64_t{320} << 20;  // more than is under way at once
constexpr uint64_t kMiB = uint64_t{1} << 20;

fake_cuda_counts Counts() {
  fake_cuda_counts counts;
  fake_cuda_get_counts(&counts);
  return counts;
}

class GpuCopies : public ::testing::Test {
 protected:
  GpuCopies() { FillRandom(rig_.arena(0), kArena, 1); }
  ~GpuCopies() override {
    fake_cuda_hold_copies(0);
    fake_cuda_configure("fail_copy=0;sticky=0");
  }
  bool Arrived(uint64_t bytes) { return memcmp(rig_.arena(1), rig_.arena(0), bytes) == 0; }
  // What was launched is with the engine, as far as it takes it.
  void Settle() {
    for (int i = 0; i < 4; ++i) rig_.lane(1).RunAndWait([] {});
  }
  CopyRig rig_{false, kArena, true};
};

TEST_F(GpuCopies, AreAnsweredWhenTheirBytesAreThere) {
  fake_cuda_hold_copies(1);
  rig_.Launch(0, {{1, {{0, kMiB}}, {{0, kMiB}}}});
  Settle();
  EXPECT_EQ(rig_.answers(1).count(), 0u);
  fake_cuda_hold_copies(0);
  EXPECT_TRUE(rig_.Await(0, 1).ok());
  EXPECT_TRUE(Arrived(kMiB));
}

TEST_F(GpuCopies, KeepTheEngineBusyAndNoMore) {
  fake_cuda_hold_copies(1);
  const uint64_t before = Counts().copies;
  rig_.Launch(0, {{1, {{0, kArena}}, {{0, kArena}}}});
  Settle();
  // Two steps; the rest waits with us, where what is small may overtake it.
  EXPECT_EQ(Counts().copies - before, 2u);
  fake_cuda_hold_copies(0);
  EXPECT_TRUE(rig_.Await(0, 1).ok());
  EXPECT_TRUE(Arrived(kArena));
}

TEST_F(GpuCopies, SmallOnesGoBeforeWhatIsLeftOfLargeOnes) {
  fake_cuda_hold_copies(1);
  rig_.Launch(0, {{1, {{0, kArena - kMiB}}, {{0, kArena - kMiB}}}});
  Settle();
  rig_.Launch(0, {{2, {{kArena - kMiB, 64}}, {{kArena - kMiB, 64}}}});
  Settle();
  fake_cuda_hold_copies(0);
  EXPECT_TRUE(rig_.Await(0, 1).ok());
  EXPECT_TRUE(rig_.Await(0, 2).ok());
  EXPECT_EQ(rig_.answers(1).order(), (std::vector<TransferId>{TransferId(2), TransferId(1)}));
}

TEST_F(GpuCopies, AnAbortIsAnsweredWhenNothingIsUnderWay) {
  fake_cuda_hold_copies(1);
  constexpr uint64_t kMost = kArena - kMiB;
  rig_.Launch(0, {{1, {{0, kMost}}, {{0, kMost}}}, {2, {{0, 8}}, {{kMost, 8}}}});
  Settle();
  rig_.Abort(1, 1, Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the test wants it"));
  Settle();
  for (const TransferId answered : rig_.answers(1).order()) EXPECT_NE(answered, TransferId(1));
  fake_cuda_hold_copies(0);
  EXPECT_EQ(ReasonOf(rig_.Await(0, 1)), Reason::kCancelled);
  EXPECT_TRUE(rig_.Await(0, 2).ok());
  rig_.ExpectAnswered(1, 2);
}

TEST_F(GpuCopies, ManyPiecesAreOneCall) {
  const uint64_t before = Counts().launches;
  std::vector<Range> from, to;
  for (uint64_t i = 0; i < 500; ++i) {
    from.push_back({ArenaId(1), i * 4096, 4096});
    to.push_back({ArenaId(1), i * 8192, 4096});
  }
  rig_.Launch(0, {{1, Layout(from), Layout(to)}});
  EXPECT_TRUE(rig_.Await(0, 1).ok());
  EXPECT_EQ(Counts().launches - before, 1u);
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_EQ(memcmp(rig_.arena(1) + i * 8192, rig_.arena(0) + i * 4096, 4096), 0) << i;
  }
}

TEST_F(GpuCopies, ARefusedCopyFailsItsTransferAndNoOther) {
  fake_cuda_configure("fail_copy=1");
  rig_.Launch(0, {{1, {{0, 40 * kMiB}}, {{0, 40 * kMiB}}}});
  const absl::Status failed = rig_.Await(0, 1);
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal) << failed;
  EXPECT_THAT(std::string(failed.message()),
              ::testing::HasSubstr("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"));
  rig_.Launch(0, {{2, {{0, kMiB}}, {{0, kMiB}}}});
  EXPECT_TRUE(rig_.Await(0, 2).ok());
  EXPECT_TRUE(Arrived(kMiB));
}

TEST_F(GpuCopies, TakingTheLaneDownWaitsForWhatIsUnderWay) {
  rig_.Launch(0, {{1, {{0, kArena}}, {{0, kArena}}}});
  rig_.TakeDown(1);
  rig_.ExpectAnswered(1, 1);
  const uint64_t copied = Counts().bytes_copied;
  rig_.lane(1).RunAndWait([] {});
  EXPECT_EQ(Counts().bytes_copied, copied);
}

using GpuCopiesDeathTest = GpuCopies;

TEST_F(GpuCopiesDeathTest, AnErrorThatStaysEndsTheProcessWithItsStory) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        fake_cuda_configure("sticky=1");
        rig_.Launch(0, {{1, {{0, kMiB}}, {{0, kMiB}}}});
        EXPECT_FALSE(rig_.Await(0, 1).ok());
      },
      "CUDA_ERROR_ECC_UNCORRECTABLE.*the GPUs of this process are lost(.|\n)*flight recorder");
}

}  // namespace
}  // namespace ferry
