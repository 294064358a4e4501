// SPDX-License-Identifier: Apache-2.0
// Who moves many small pieces: the rule, and the kernel's launches through the fake CUDA.
#include "device/cuda/cuda_gather.h"

#include <fake_cuda.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "base/executor.h"
#include "device/cuda/cuda_device.h"

namespace ferry {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiBytes = 1024 * kKiB;

// A step alone: its end.
void OneStep(MoverChoice& choice, size_t bytes, absl::Duration took, absl::Time now) {
  choice.OnStepBegun(bytes, /*tells=*/true, now - took);
  choice.OnStepOver(bytes, /*tells=*/true, now);
}

TEST(MoverChoiceTest, TheKernelTakesManySmallPieces) {
  const MoverChoice choice;
  const absl::Time now;
  EXPECT_TRUE(choice.PreferKernel(16, 16 * 64 * kKiB, now));
  EXPECT_TRUE(choice.PreferKernel(1000, 1000 * 64 * kKiB, now));
  EXPECT_TRUE(choice.PreferKernel(10'000, 10'000 * 4 * kKiB, now));
  EXPECT_FALSE(choice.PreferKernel(1, 64 * kKiB, now));
  EXPECT_FALSE(choice.PreferKernel(1, 256 * kMiBytes, now));
  EXPECT_FALSE(choice.PreferKernel(4, 64 * kMiBytes, now));
}

TEST(MoverChoiceTest, BusySmsAreLeftAloneUnlessTheEngineIsSlowerStill) {
  MoverChoice choice;
  absl::Time now;
  OneStep(choice, kMiBytes, absl::Milliseconds(2), now);
  EXPECT_TRUE(choice.sms().busy(now));
  EXPECT_FALSE(choice.PreferKernel(1000, 1000 * 64 * kKiB, now));
  EXPECT_TRUE(choice.PreferKernel(10'000, 10'000 * 4 * kKiB, now));
  now += absl::Milliseconds(10);
  EXPECT_FALSE(choice.sms().busy(now));
  EXPECT_TRUE(choice.PreferKernel(1000, 1000 * 64 * kKiB, now));
  // Found busy again and again: tried less and less often.
  OneStep(choice, kMiBytes, absl::Milliseconds(2), now);
  EXPECT_TRUE(choice.sms().busy(now + absl::Milliseconds(19)));
  for (int i = 0; i < 10; ++i) OneStep(choice, kMiBytes, absl::Milliseconds(2), now);
  EXPECT_TRUE(choice.sms().busy(now + absl::Milliseconds(999)));
  EXPECT_FALSE(choice.sms().busy(now + absl::Seconds(1)));
  // A launch in time: not busy, and the next time it is found so it is for a short while.
  now += absl::Seconds(1);
  OneStep(choice, kMiBytes, absl::Microseconds(20), now);
  OneStep(choice, kMiBytes, absl::Milliseconds(2), now);
  EXPECT_TRUE(choice.sms().busy(now + absl::Milliseconds(9)));
  EXPECT_FALSE(choice.sms().busy(now + absl::Milliseconds(10)));
}

TEST(MoverChoiceTest, OnASlowRoadOnlyAShortStepTellsOfSms) {
  EXPECT_TRUE(MoverChoice::TellsOfSms(256 * kMiBytes, /*slow_road=*/false));
  EXPECT_TRUE(MoverChoice::TellsOfSms(kMiBytes, /*slow_road=*/true));
  EXPECT_FALSE(MoverChoice::TellsOfSms(kMiBytes + 1, /*slow_road=*/true));
  // Idle SMs, and PCIe of 6 GB/s: in time.
  MoverChoice choice;
  const absl::Time now;
  OneStep(choice, kMiBytes, absl::Seconds(static_cast<double>(kMiBytes) / 6e9), now);
  EXPECT_FALSE(choice.sms().busy(now));
}

TEST(MoverChoiceTest, StepsUnderWayShareTheRoad) {
  MoverChoice choice;
  const auto at = [](int us) { return absl::Time() + absl::Microseconds(us); };
  const size_t bytes = 256 * kMiBytes;  // 813 us at 330 GB/s
  // Each takes twice as long as alone, again and again.
  choice.OnStepBegun(bytes, true, at(0));
  for (int i = 0; i < 5; ++i) {
    choice.OnStepBegun(bytes, true, at(820 * i + 10));
    choice.OnStepOver(bytes, true, at(820 * (i + 1)));
    EXPECT_FALSE(choice.sms().busy(at(820 * (i + 1)))) << i;
  }
  choice.OnStepOver(bytes, true, at(820 * 6));
  EXPECT_FALSE(choice.sms().busy(at(820 * 6)));
  // Somebody else has the SMs: both wait for a time slice.
  choice.OnStepBegun(bytes, true, at(10'000));
  choice.OnStepBegun(bytes, true, at(10'010));
  choice.OnStepOver(bytes, true, at(13'000));
  EXPECT_TRUE(choice.sms().busy(at(13'000)));
}

TEST(MoverChoiceTest, BesideAStepThatDoesNotTellNoTimeMeansAnything) {
  MoverChoice choice;
  const auto at = [](int us) { return absl::Time() + absl::Microseconds(us); };
  choice.OnStepBegun(64 * kMiBytes, /*tells=*/false, at(0));  // over PCIe
  choice.OnStepBegun(kMiBytes, true, at(10'000));
  choice.OnStepOver(kMiBytes, true, at(20'000));
  EXPECT_FALSE(choice.sms().busy(at(20'000)));
  choice.OnStepBegun(kMiBytes, true, at(20'000));
  choice.OnStepOver(64 * kMiBytes, false, at(30'000));
  EXPECT_FALSE(choice.sms().busy(at(30'000)));
  choice.OnStepOver(kMiBytes, true, at(33'000));  // alone since the other was over
  EXPECT_TRUE(choice.sms().busy(at(33'000)));
}

class GatherCopierTest : public ::testing::Test {
 protected:
  GatherCopierTest()
      : gpu_(FAKE_CUDA_LIBRARY, (*FindGpus(FAKE_CUDA_LIBRARY))[0], {0, 1}),
        from_(Allocate()),
        to_(Allocate()),
        copier_(gpu_.MakeCopier(CopyUse::kTransfers)) {
    std::mt19937 random(1);
    for (size_t i = 0; i < kBytes; ++i) from_->data()[i] = static_cast<std::byte>(random());
    memset(to_->data(), 0xee, kBytes);
  }
  ~GatherCopierTest() override { fake_cuda_configure("kernel_us=0;fail_copy=0"); }

  std::unique_ptr<DeviceMemory> Allocate() {
    auto memory = gpu_.Map({MemoryKind::kCudaAllocate, kBytes}, {});
    EXPECT_TRUE(memory.ok()) << memory.status();
    return *std::move(memory);
  }
  // Pieces of odd sizes at odd places, none touching another, until the memory is full.
  std::vector<CopyPiece> Scattered(size_t most) {
    std::mt19937 random(2);
    std::vector<CopyPiece> pieces;
    for (size_t at = 0; at + most < kBytes;) {
      const size_t size = 1 + random() % most;
      pieces.push_back({to_->data() + at, from_->data() + at, size});
      at += size + 1 + random() % 7;
    }
    return pieces;
  }
  absl::Status Run(const std::vector<CopyPiece>& pieces) {
    copier_->Start(pieces);
    while (true) {
      if (std::optional<absl::Status> over = copier_->TakeOver()) return *over;
    }
  }
  void ExpectCopied(const std::vector<CopyPiece>& pieces) {
    std::vector<std::byte> expected(kBytes, std::byte{0xee});
    for (const CopyPiece& piece : pieces) {
      memcpy(expected.data() + (piece.destination - to_->data()), piece.source, piece.size);
    }
    EXPECT_EQ(memcmp(to_->data(), expected.data(), kBytes), 0);
  }
  static uint64_t Launches() {
    fake_cuda_counts counts;
    fake_cuda_get_counts(&counts);
    return counts.launches;
  }

  static constexpr size_t kBytes = 4 * kMiBytes;
  CudaDevice gpu_;
  std::unique_ptr<DeviceMemory> from_, to_;
  std::unique_ptr<Copier> copier_;
};

TEST_F(GatherCopierTest, ManySmallPiecesAreOneLaunch) {
  const uint64_t before = Launches();
  const std::vector<CopyPiece> pieces = Scattered(3000);
  ASSERT_GT(pieces.size(), 1000u);
  EXPECT_TRUE(Run(pieces).ok());
  EXPECT_EQ(Launches(), before + 1);
  ExpectCopied(pieces);
}

TEST_F(GatherCopierTest, PiecesLongerThanATaskAreCut) {
  const uint64_t before = Launches();
  std::vector<CopyPiece> pieces;
  const size_t size = CudaGather::kTaskBytes + 12'345;
  for (size_t at = 0; at + size <= kBytes; at += 2 * size) {
    pieces.push_back({to_->data() + at, from_->data() + at, size});
  }
  ASSERT_GE(pieces.size(), 16u);
  EXPECT_TRUE(Run(pieces).ok());
  EXPECT_EQ(Launches(), before + 1);
  ExpectCopied(pieces);
}

TEST_F(GatherCopierTest, ALateLaunchSendsTheNextToTheCopyEngine) {
  fake_cuda_configure("kernel_us=5000");
  const std::vector<CopyPiece> pieces = Scattered(10'000);
  uint64_t launches = 0, runs = 0;
  const uint64_t before = Launches();
  // A machine that lets us wait may find the SMs' time over before the next is begun.
  while (launches == runs && runs < 100) {
    EXPECT_TRUE(Run(pieces).ok());
    ++runs;
    launches = Launches() - before;
  }
  EXPECT_GE(launches, 1u);
  EXPECT_EQ(launches, runs - 1);
  ExpectCopied(pieces);
}

TEST_F(GatherCopierTest, ALongStepOnASlowRoadIsNotTakenForBusySms) {
  fake_cuda_configure("kernel_us=5000");
  int found = 0;
  copier_ = gpu_.MakeCopier(CopyUse::kTransfers, [&](absl::Time) { ++found; });
  std::vector<CopyPiece> pieces = Scattered(3000);
  for (CopyPiece& piece : pieces) piece.slow_road = true;
  const uint64_t before = Launches();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Run(pieces).ok());
  EXPECT_EQ(Launches(), before + 3);
  EXPECT_EQ(found, 0);
  ExpectCopied(pieces);
  // One piece of many is enough; and a short step tells whatever its road.
  for (size_t i = 1; i < pieces.size(); ++i) pieces[i].slow_road = false;
  EXPECT_TRUE(Run(pieces).ok());
  EXPECT_EQ(found, 0);
  pieces.resize(100);
  EXPECT_TRUE(Run(pieces).ok());
  EXPECT_EQ(found, 1);
}

TEST_F(GatherCopierTest, ARefusedLaunchIsTheStepsFailure) {
  fake_cuda_configure("fail_copy=1");
  EXPECT_FALSE(Run(Scattered(3000)).ok());
  EXPECT_TRUE(Run(Scattered(3000)).ok());
  ExpectCopied(Scattered(3000));
}

TEST_F(GatherCopierTest, StepsUnderWayHaveTablesOfTheirOwn) {
  fake_cuda_hold_copies(1);
  const std::vector<CopyPiece> pieces = Scattered(3000);
  const size_t steps = copier_->limits().steps;
  ASSERT_GT(steps, 1u);
  const size_t part = pieces.size() / steps;
  std::vector<CopyPiece> begun;
  for (size_t i = 0; i < steps; ++i) {
    const std::vector<CopyPiece> step(pieces.begin() + static_cast<long>(i * part),
                                      pieces.begin() + static_cast<long>((i + 1) * part));
    begun.insert(begun.end(), step.begin(), step.end());
    copier_->Start(step);
  }
  fake_cuda_hold_copies(0);
  for (size_t over = 0; over < steps;) {
    if (std::optional<absl::Status> status = copier_->TakeOver()) {
      EXPECT_TRUE(status->ok()) << *status;
      ++over;
    }
  }
  ExpectCopied(begun);
}

}  // namespace
}  // namespace ferry
