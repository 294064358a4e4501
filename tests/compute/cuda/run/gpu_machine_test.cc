// SPDX-License-Identifier: Apache-2.0
// Programs on a GPU that is the CPU.
#include "compute/cuda/run/gpu_machine.h"

#include <fake_cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "tests/compute/cuda/run/gpu_machine_fixture.h"
#include "tests/compute/parsed_program.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/program_weaver.h"
#include "tests/compute/reference/evaluate.h"
#include "tests/support/await.h"

namespace ferry::compute {
namespace {

using testing::Bytes;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using GpuMachineTest = testing::GpuMachineFixture;

TEST_F(GpuMachineTest, ProgramsGiveTheReferencesBits) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    CompareWithReference(Simplify(testing::Weaver(seed, 4).Make()), seed);
  }
}

TEST_F(GpuMachineTest, ARepeatCountsItsTrips) {
  ParsedText parsed = Parse(
      "program 1\nbuffer @out write 32\n"
      "%zero = constant splat=0 : i32[8]\n"
      "%sum = repeat %zero trips=5 (%n, %s)\n"
      "%all = broadcast_in_dim %n : i32[8]\n"
      "%more = add %s, %all\nyield %more\n"
      "store @out, %sum\n");
  ASSERT_TRUE(parsed.problems.empty()) << parsed.problems[0].text;
  CompareWithReference(parsed.program, 1);
}

TEST_F(GpuMachineTest, EachKernelIsCompiledAndLoadedOnce) {
  const Program program = Steps(3);
  const GpuProgram first = Made(program);
  EXPECT_EQ(first.compiled(), 1) << "the steps differ only in their buffers";
  EXPECT_EQ(Made(program).compiled(), 0);
  Memory memory = Bind(first, Ones(program));
  GpuMachine::Aside aside;
  ASSERT_TRUE(Run(first, memory, aside).ok());
  ASSERT_TRUE(Run(first, memory, aside).ok());
  EXPECT_EQ(machine_->loaded(), 1u);
  EXPECT_EQ(ValueOf(memory, 3), 8);
}

// Gives a store tiers, whose full kernels are not compiled before Go().
class TierTest : public GpuMachineTest {
 protected:
  TierTest() : tiers_(Options()) {}
  ~TierTest() override { Go(); }

  KernelStore::Options Options() {
    KernelStore::Options options;
    options.compiler = testing::CompilerOptions();
    options.tiers = true;
    options.problem = [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      problems_.push_back(text);
    };
    options.before_full = [this] { go_.WaitForNotification(); };
    return options;
  }
  void Go() {
    if (!go_.HasBeenNotified()) go_.Notify();
  }
  std::vector<std::string> problems() {
    const std::lock_guard lock(mutex_);
    return problems_;
  }
  void AwaitFull() {
    Go();
    ASSERT_TRUE(ferry::testing::Await([&] { return tiers_.counts().waiting == 0; }));
  }
  GpuProgram MadeOfTiers(const Program& program) {
    absl::StatusOr<GpuProgram> made = GpuProgram::Make(program, kGpuArchs[0], tiers_);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  static const GpuCommand& FirstLaunch(const GpuProgram& program) {
    return program.plan().commands[0];
  }

  absl::Notification go_;
  std::mutex mutex_;
  std::vector<std::string> problems_;
  KernelStore tiers_;
};

TEST_F(TierTest, TheFirstRunIsOfTheFirstTierAndALaterOneIsFull) {
  const Program program = Steps(3);
  const GpuProgram made = MadeOfTiers(program);
  EXPECT_FALSE(made.full());
  EXPECT_EQ(made.compiled(), 1);
  EXPECT_EQ(tiers_.counts().compiled_first, 1u);
  EXPECT_EQ(tiers_.counts().waiting, 1u);
  const GpuProgram::Launch first = made.LaunchOf(FirstLaunch(made), made.full());
  EXPECT_EQ(first.code, made.first_codes()[0]);
  Memory memory = Bind(made, Ones(program));
  GpuMachine::Aside aside;
  ASSERT_TRUE(Run(made, memory, aside).ok());
  EXPECT_EQ(ValueOf(memory, 3), 8);

  AwaitFull();
  ASSERT_TRUE(made.full());
  EXPECT_NE(made.LaunchOf(FirstLaunch(made), true).code, first.code);
  Memory again = Bind(made, Ones(program));
  ASSERT_TRUE(Run(made, again, aside).ok());
  EXPECT_EQ(ValueOf(again, 3), 8);
  EXPECT_EQ(machine_->loaded(), 1u) << "the first tier is gone";
  EXPECT_EQ(tiers_.counts().compiled, 1u);
  EXPECT_THAT(problems(), IsEmpty());
  const GpuProgram known = MadeOfTiers(program);
  EXPECT_TRUE(known.full()) << "it needs no first tier any more";
  EXPECT_THAT(known.plan().first_kernels, IsEmpty()) << "nor is one written";
  EXPECT_EQ(tiers_.counts().compiled_first, 1u);
}

// A run that is under way goes on as it began.
TEST_F(TierTest, ARunIsOfOneTier) {
  const Program program = Steps(3);
  const GpuProgram made = MadeOfTiers(program);
  Memory memory = Bind(made, Ones(program));
  GpuMachine::Aside aside;
  int asked = 0;
  ASSERT_TRUE(Run(made, memory, aside, [&] {
                if (++asked == 2) AwaitFull();
                return true;
              }).ok());
  EXPECT_TRUE(made.full());
  EXPECT_EQ(machine_->loaded(), 1u);
  EXPECT_EQ(ValueOf(memory, 3), 8);
}

TEST_F(TierTest, WhatDoesNotCompileInFullStaysAsItWasAndIsSaidOnce) {
  // The number is the fake NVRTC's sign.
  const Program program = testing::ParsedProgram(
      "program 1\nbuffer @x read 32\nbuffer @y write 32\n%x = input @x : u32[8]\n"
      "%n = constant splat=4195478801 : u32[8]\n%y = add %x, %n\nstore @y, %y\n");
  const GpuProgram made = MadeOfTiers(program);
  AwaitFull();
  EXPECT_FALSE(made.full());
  EXPECT_FALSE(MadeOfTiers(program).full());
  ASSERT_TRUE(ferry::testing::Await([&] { return tiers_.counts().waiting == 0; }));
  EXPECT_EQ(tiers_.counts().failed, 1u);
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_THAT(problems()[0], HasSubstr("stays as it was compiled first"));
  EXPECT_THAT(problems()[0], HasSubstr("the fake was told to fail"));
  Memory memory = Bind(made, Ones(program));
  GpuMachine::Aside aside;
  ASSERT_TRUE(Run(made, memory, aside).ok());
  EXPECT_EQ(static_cast<uint32_t>(ValueOf(memory, 1)), 4195478802u);
}

TEST_F(TierTest, ProgramsGiveTheReferencesBitsInEitherTier) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const Program program = Simplify(testing::Weaver(seed, 4).Make());
    const GpuProgram made = MadeOfTiers(program);
    CompareRun(program, made, seed);
  }
  AwaitFull();
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const Program program = Simplify(testing::Weaver(seed, 4).Make());
    const GpuProgram made = MadeOfTiers(program);
    EXPECT_TRUE(made.full());
    CompareRun(program, made, seed);
  }
}

TEST_F(GpuMachineTest, ARunThatMayNotGoOnEndsBeforeTheNextLaunch) {
  const Program program = Steps(3);
  const GpuProgram made = Made(program);
  Memory memory = Bind(made, Ones(program));
  int asked = 0;
  GpuMachine::Aside aside;
  const absl::Status status = Run(made, memory, aside, [&] { return ++asked < 3; });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(status.message()), HasSubstr("before step 2 of 3"));
  EXPECT_EQ(ValueOf(memory, 2), 4);
  EXPECT_EQ(ValueOf(memory, 3), 0);
}

TEST_F(GpuMachineTest, ARunThatWasPutAsideGoesOn) {
  const Program program = Steps(3);
  const GpuProgram made = Made(program);
  Memory memory = Bind(made, Ones(program));
  GpuMachine::Aside aside;
  bool wanted = true;
  aside.wanted = [&] { return wanted; };
  ASSERT_TRUE(Run(made, memory, aside).ok());
  ASSERT_TRUE(aside.put);
  EXPECT_EQ(aside.step, 1u);
  EXPECT_EQ(ValueOf(memory, 1), 2) << "nothing of it is under way";
  EXPECT_EQ(ValueOf(memory, 2), 0);
  wanted = false;
  ASSERT_TRUE(Run(made, memory, aside).ok());
  EXPECT_FALSE(aside.put);
  EXPECT_EQ(ValueOf(memory, 3), 8);
}

TEST_F(GpuMachineTest, ARunThatLagsIsOverWhenTheGpuSaysSo) {
  constexpr uint64_t kRuns = 4;
  const Program program = Steps(2);
  const GpuProgram made = Made(program);
  Memory memory = Bind(made, Ones(program));
  GpuMachine::Aside aside;
  GpuMachine::Work work = Work(made, memory);
  work.may_lag = true;
  fake_cuda_hold_copies(1);
  for (uint64_t run = 1; run <= kRuns; ++run) {
    ASSERT_TRUE(machine_->Run(work, aside).ok());
    EXPECT_EQ(machine_->begun(), run);
  }
  EXPECT_EQ(machine_->over(), 0u);
  EXPECT_EQ(machine_->current(), 1u);
  EXPECT_TRUE(machine_->Look().ok());
  fake_cuda_hold_copies(0);
  ASSERT_TRUE(machine_->Await().ok());
  EXPECT_EQ(machine_->over(), kRuns);
  EXPECT_EQ(machine_->current(), kRuns + 1);
  EXPECT_EQ(ValueOf(memory, 2), 4);
  // One more, which nobody waits for in the driver.
  fake_cuda_counts before, after;
  fake_cuda_get_counts(&before);
  ASSERT_TRUE(machine_->Run(work, aside).ok());
  while (machine_->over() < machine_->begun()) std::this_thread::yield();
  fake_cuda_get_counts(&after);
  EXPECT_EQ(before.waits, after.waits);
}

TEST_F(GpuMachineTest, ARunThatMayNotGoOnWaitsForThoseBeforeIt) {
  const Program program = Steps(3);
  const GpuProgram made = Made(program);
  Memory first = Bind(made, Ones(program)), second = Bind(made, Ones(program));
  GpuMachine::Aside aside;
  GpuMachine::Work work = Work(made, first);
  work.may_lag = true;
  fake_cuda_hold_copies(1);
  ASSERT_TRUE(machine_->Run(work, aside).ok());
  work.buffers = second.buffers;
  int asked = 0;
  work.may_go_on = [&] {
    if (++asked < 3) return true;
    EXPECT_EQ(machine_->over(), 0u) << "the run before is under way";
    fake_cuda_hold_copies(0);
    return false;
  };
  EXPECT_EQ(machine_->Run(work, aside).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(machine_->over(), 2u);
  EXPECT_EQ(ValueOf(first, 3), 8);
  EXPECT_EQ(ValueOf(second, 2), 4);
  EXPECT_EQ(ValueOf(second, 3), 0);
}

// As of a driver that does not take such stores: every run is waited for.
TEST_F(GpuMachineTest, WhereTheGpuCannotSaySoEachRunIsWaitedFor) {
  const Program program = Steps(1);
  const GpuProgram made = Made(program);
  Memory memory = Bind(made, Ones(program));
  GpuMachine::Aside aside;
  GpuMachine::Work work = Work(made, memory);
  work.may_lag = true;
  fake_cuda_configure("no_stores=1");
  const absl::Status status = machine_->Run(work, aside);
  fake_cuda_configure("no_stores=0");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(machine_->over(), machine_->begun());
  EXPECT_EQ(ValueOf(memory, 1), 2);
}

TEST_F(GpuMachineTest, ItHoldsTheContextUntilItIsClosed) {
  const Program program = Steps(1);
  const GpuProgram made = Made(program);
  {
    Memory memory = Bind(made, Ones(program));
    GpuMachine::Aside aside;
    ASSERT_TRUE(Run(made, memory, aside).ok());
  }
  EXPECT_TRUE(device_->usage().context);
  EXPECT_FALSE(device_->Release().ok());
  machine_->Close();
  EXPECT_FALSE(device_->usage().context);
  EXPECT_TRUE(device_->Release().ok());
  device_->Reclaim();
  // And opens it again.
  Memory memory = Bind(made, Ones(program));
  GpuMachine::Aside aside;
  ASSERT_TRUE(Run(made, memory, aside).ok());
  EXPECT_EQ(ValueOf(memory, 1), 2);
}

TEST_F(GpuMachineTest, AKernelsAttributesAreSetOnce) {
  const Program program = Steps(3);
  const GpuProgram made = Made(program);
  Memory memory = Bind(made, Ones(program));
  std::vector<uint64_t> set;
  for (int run = 0; run < 3; ++run) {
    fake_cuda_counts before, after;
    fake_cuda_get_counts(&before);
    GpuMachine::Aside aside;
    ASSERT_TRUE(Run(made, memory, aside).ok());
    fake_cuda_get_counts(&after);
    EXPECT_EQ(after.launches - before.launches, 3u);
    set.push_back(after.attributes - before.attributes);
  }
  EXPECT_EQ(set, (std::vector<uint64_t>{made.plan().kernels.size(), 0, 0}));
}

// It is asked at each launch: kernels that have the GPU's memory to themselves take it all.
TEST_F(GpuMachineTest, KernelsLeaveRoomForCopiesOfWhatARunReceives) {
  const Program program = Steps(1);
  const GpuProgram made = Made(program);
  Memory memory = Bind(made, Ones(program));
  const auto spared = [&](bool receives) {
    fake_cuda_counts before, after;
    fake_cuda_get_counts(&before);
    GpuMachine::Work work = Work(made, memory);
    work.receives = receives;
    GpuMachine::Aside aside;
    EXPECT_TRUE(machine_->Run(work, aside).ok());
    fake_cuda_get_counts(&after);
    EXPECT_EQ(after.launches - before.launches, 1u);
    return after.shared_bytes - before.shared_bytes;
  };
  EXPECT_EQ(spared(true), 0u) << "nothing is copied";
  std::byte* const at = memory.memory->data();
  for (const CopyUse use : {CopyUse::kTransfers, CopyUse::kPrepared, CopyUse::kStageOut}) {
    const std::unique_ptr<Copier> copier = device_->MakeCopier(use);
    copier->Start({{at, at, 8}});
    EXPECT_EQ(spared(false), 0u) << "the copies are of others";
    const uint64_t bytes = spared(true);
    if (use == CopyUse::kStageOut) {
      EXPECT_EQ(bytes, 0u);
    } else {  // blocks of 256 threads that a multiprocessor of the fake GPU has room for
      EXPECT_EQ((228 << 10) / (bytes + (1 << 10)) * 256, CudaKernel::kThreadsBesideCopies);
    }
    EXPECT_TRUE(ferry::testing::Await([&] { return copier->TakeOver().has_value(); }));
    EXPECT_EQ(spared(true), 0u);
  }
}

}  // namespace
}  // namespace ferry::compute
