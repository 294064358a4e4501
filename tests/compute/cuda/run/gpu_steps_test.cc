// SPDX-License-Identifier: Apache-2.0
// Who hears of the steps of runs on a GPU, which is the CPU, and how many are queued ahead.
#include <fake_cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "compute/cuda/run/gpu_machine.h"
#include "compute/passes/passes.h"
#include "compute/plan/transfers.h"
#include "compute/program/text.h"
#include "tests/compute/cuda/run/gpu_machine_fixture.h"
#include "tests/compute/parsed_program.h"
#include "tests/compute/program_runs.h"
#include "tests/support/await.h"

namespace ferry::compute {
namespace {

using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class GpuStepsTest : public testing::GpuMachineFixture {
 protected:
  // A thread that lets held kernels run once so many launches were made in all.
  static std::thread FreeAfter(uint64_t launches) {
    return std::thread([launches] {
      EXPECT_TRUE(ferry::testing::Await([&] { return Launches() >= launches; }));
      fake_cuda_hold_copies(0);
    });
  }
  // A run that may lag, and tells of its first step by `of`, of the next one by 1 more.
  static GpuMachine::Work Telling(const GpuProgram& made, Memory& memory, std::vector<int>& told,
                                  int of) {
    GpuMachine::Work work = Work(made, memory, nullptr, [&told, of](size_t step) {
      told.push_back(of + static_cast<int>(step));
    });
    work.may_lag = true;
    return work;
  }
};

TEST_F(GpuStepsTest, StepsAreToldInOrderWhenTheirBytesAreThere) {
  const Program program = Steps(3);
  const GpuProgram made = Made(program);
  Memory memory = Bind(made, Ones(program));
  std::vector<int> values;
  GpuMachine::Aside aside;
  ASSERT_TRUE(Run(made, memory, aside, nullptr, [&](size_t step) {
                values.push_back(ValueOf(memory, step + 1));
              }).ok());
  EXPECT_THAT(values, ElementsAre(2, 4, 8));
}

TEST_F(GpuStepsTest, StepsAreQueuedBeforeThoseAheadOfThemAreToldOf) {
  const Program program = Steps(3);
  const GpuProgram made = Made(program);
  Memory memory = Bind(made, Ones(program));
  std::vector<size_t> told;
  fake_cuda_hold_copies(1);
  int asked = 0;
  const auto may_go_on = [&] {
    if (++asked < 3) return true;
    EXPECT_THAT(told, IsEmpty()) << "the first step is under way";
    fake_cuda_hold_copies(0);
    return true;
  };
  GpuMachine::Aside aside;
  GpuMachine::Work work = Work(made, memory, may_go_on, [&](size_t step) { told.push_back(step); });
  ASSERT_TRUE(machine_->Run(work, aside).ok());
  EXPECT_EQ(asked, 3);
  EXPECT_THAT(told, ElementsAre(0, 1, 2));
}

TEST_F(GpuStepsTest, StepsOfARunThatLagsAreToldOfByWhoeverAsks) {
  const Program program = Steps(2);
  const GpuProgram made = Made(program);
  Memory first = Bind(made, Ones(program)), second = Bind(made, Ones(program));
  std::vector<int> told;
  GpuMachine::Aside aside;
  fake_cuda_hold_copies(1);
  const GpuMachine::Work ahead = Telling(made, first, told, 10);
  ASSERT_TRUE(machine_->Run(ahead, aside).ok());
  const GpuMachine::Work behind = Telling(made, second, told, 20);
  ASSERT_TRUE(machine_->Run(behind, aside).ok());
  EXPECT_TRUE(machine_->Tell().ok());
  EXPECT_THAT(told, IsEmpty());
  fake_cuda_hold_copies(0);
  while (machine_->over() < machine_->begun()) std::this_thread::yield();
  EXPECT_THAT(told, IsEmpty());
  ASSERT_TRUE(machine_->Tell().ok());
  EXPECT_THAT(told, ElementsAre(10, 11, 20, 21));
}

// The marks are of a stream that follows the one that is waited for.
TEST_F(GpuStepsTest, WhoeverWaitsHasAllStepsToldOf) {
  const Program program = Steps(2);
  const GpuProgram made = Made(program);
  Memory memory = Bind(made, Ones(program));
  GpuMachine::Aside aside;
  for (size_t i = 1; i <= 20; ++i) {
    size_t told = 0;
    GpuMachine::Work work = Work(made, memory, nullptr, [&](size_t) { ++told; });
    work.may_lag = true;
    ASSERT_TRUE(machine_->Run(work, aside).ok());
    ASSERT_TRUE(machine_->Await().ok());
    EXPECT_EQ(told, 2u);
  }
}

TEST_F(GpuStepsTest, WhatARunSendsWaitsForThoseThatMayWriteIt) {
  const Program program = Steps(1);
  const GpuProgram made = Made(program);
  const Program sends = testing::ParsedProgram(
      "program 1\nbuffer @x read 32\n%x = input @x : i32[8]\nsend %x peer=\"p\" key=\"k\"\n");
  const GpuProgram made_too = Made(sends);
  Memory memory = Bind(made, Ones(program));
  Memory of_send = Bind(made_too, {Bytes(32)});
  of_send.buffers[0] = memory.buffers[1];  // what the first run writes
  GpuMachine::Aside aside;
  GpuMachine::Work work = Work(made, memory);
  work.may_lag = true;
  fake_cuda_hold_copies(1);
  ASSERT_TRUE(machine_->Run(work, aside).ok());
  std::vector<int> sent;
  GpuMachine::Work send =
      Work(made_too, of_send, nullptr, [&](size_t) { sent.push_back(ValueOf(of_send, 0)); });
  send.may_lag = true;
  ASSERT_TRUE(machine_->Run(send, aside).ok());
  EXPECT_THAT(sent, IsEmpty());
  fake_cuda_hold_copies(0);
  ASSERT_TRUE(machine_->Await().ok());
  EXPECT_THAT(sent, ElementsAre(2));
}

TEST_F(GpuStepsTest, StepsAreToldOfWhileALongRunIsQueuedBehindThem) {
  const Program program = Steps(1), longer = Steps(3 * GpuMachine::kLaunchesAhead);
  const GpuProgram made = Made(program), made_longer = Made(longer);
  Memory memory = Bind(made, Ones(program)), memory_longer = Bind(made_longer, Ones(longer));
  const uint64_t before = Launches();
  bool told = false;
  GpuMachine::Aside aside;
  GpuMachine::Work work = Work(made, memory, nullptr, [&](size_t) { told = true; });
  work.may_lag = true;
  fake_cuda_hold_copies(1);
  ASSERT_TRUE(machine_->Run(work, aside).ok());
  std::thread frees = FreeAfter(before + GpuMachine::kLaunchesAhead + 1);
  GpuMachine::Work work_longer = Work(made_longer, memory_longer);
  work_longer.may_lag = true;
  const absl::Status status = machine_->Run(work_longer, aside);
  frees.join();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(told);
  EXPECT_TRUE(machine_->Await().ok());
}

TEST_F(GpuStepsTest, ARunThatHasNothingToQueueWaitsForNoOther) {
  const Program program = Steps(1);
  const GpuProgram made = Made(program);
  const Program receives = testing::ParsedProgram(
      "program 1\nbuffer @out write 32\n%x = recv peer=\"p\" key=\"k\" : i32[8]\n"
      "%y = add %x, %x\nstore @out, %y\n");
  const GpuProgram made_too = Made(receives);
  Memory memory = Bind(made, Ones(program)), memory_too = Bind(made_too, {Bytes(32)});
  GpuMachine::Aside aside;
  GpuMachine::Work work = Work(made, memory);
  work.may_lag = true;
  fake_cuda_hold_copies(1);
  ASSERT_TRUE(machine_->Run(work, aside).ok());
  std::vector<size_t> told;
  GpuMachine::Work receive =
      Work(made_too, memory_too, nullptr, [&](size_t step) { told.push_back(step); });
  receive.end = [] { return 1; };
  ASSERT_TRUE(machine_->Run(receive, aside).ok());
  EXPECT_THAT(told, ElementsAre(0)) << "the receive may begin";
  EXPECT_EQ(machine_->begun(), 1u);
  EXPECT_EQ(machine_->over(), 0u);
  fake_cuda_hold_copies(0);
  EXPECT_TRUE(machine_->Await().ok());
}

TEST_F(GpuStepsTest, ARunIsPutAsideOnceTheStepsOfThoseBeforeItAreToldOf) {
  const Program program = Steps(2);
  const GpuProgram made = Made(program);
  Memory first = Bind(made, Ones(program)), second = Bind(made, Ones(program));
  const uint64_t before = Launches();
  std::vector<int> told;
  GpuMachine::Aside aside;
  fake_cuda_hold_copies(1);
  const GpuMachine::Work ahead = Telling(made, first, told, 10);
  ASSERT_TRUE(machine_->Run(ahead, aside).ok());
  std::thread frees = FreeAfter(before + 3);
  aside.wanted = [] { return true; };
  const GpuMachine::Work put = Telling(made, second, told, 20);
  const absl::Status status = machine_->Run(put, aside);
  frees.join();
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(aside.put);
  EXPECT_EQ(aside.step, 1u);
  EXPECT_THAT(told, ElementsAre(10, 11, 20));
  EXPECT_EQ(machine_->over(), 2u) << "nothing of either is under way";
  aside.wanted = nullptr;
  ASSERT_TRUE(machine_->Run(put, aside).ok());
  ASSERT_TRUE(machine_->Await().ok());
  EXPECT_THAT(told, ElementsAre(10, 11, 20, 21));
  EXPECT_EQ(ValueOf(second, 2), 4);
}

// Transfers between the kernels take no place among them.
TEST_F(GpuStepsTest, AsManyStepsAreAheadAsMarks) {
  constexpr int kParts = 40;
  const Program program = Simplify(
      testing::ParsedProgram("program 1\nbuffer @in read 1280\n%x = input @in : i32[40,8]\n"
                             "%y = add %x, %x\nsend %y peer=\"p\" key=\"k\" parts=40\n"));
  const GpuProgram made = Made(program);
  const std::vector<Step>& steps = made.plan().plan.steps;
  ASSERT_EQ(steps.size(), 2u * kParts);
  Memory memory = Bind(made, {Bytes(1280)});
  const uint64_t before = Launches();
  uint64_t told = 0, most = 0;
  constexpr uint64_t kAhead = GpuMachine::kLaunchesAhead + 1;
  fake_cuda_hold_copies(1);
  std::thread frees = FreeAfter(before + kAhead);
  GpuMachine::Aside aside;
  const absl::Status status = Run(made, memory, aside, nullptr, [&](size_t step) {
    if (TransferOf(steps[step])) return;
    most = std::max(most, Launches() - before - told++);
  });
  frees.join();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(told, uint64_t{kParts});
  EXPECT_EQ(most, kAhead);
}

TEST_F(GpuStepsTest, ARunGoesOnWithStepsThatComeWhileItIsUnderWay) {
  const Program program = Steps(4);
  const GpuProgram made = Made(program);
  Memory memory = Bind(made, Ones(program));
  const uint64_t before = Launches();
  std::vector<size_t> told;
  std::atomic<size_t> end{1};
  fake_cuda_hold_copies(1);
  std::thread adds([&] {
    for (const size_t steps : {1, 2, 3}) {
      end = steps;
      EXPECT_TRUE(ferry::testing::Await([&] { return Launches() - before >= steps; }));
    }
    fake_cuda_hold_copies(0);
  });
  GpuMachine::Work work = Work(made, memory, nullptr, [&](size_t step) { told.push_back(step); });
  work.end = [&] { return end.load(); };
  GpuMachine::Aside aside;
  const absl::Status status = machine_->Run(work, aside);
  adds.join();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(told, ElementsAre(0, 1, 2)) << "the fourth never came";
  EXPECT_EQ(ValueOf(memory, 3), 8);
}

TEST_F(GpuStepsTest, OfARunThatMayNotGoOnTheStepsThatAreOverAreToldOf) {
  const Program program = Steps(3);
  const GpuProgram made = Made(program);
  Memory memory = Bind(made, Ones(program));
  std::vector<size_t> told;
  int asked = 0;
  GpuMachine::Aside aside;
  const absl::Status status = Run(
      made, memory, aside, [&] { return ++asked < 3; }, [&](size_t step) { told.push_back(step); });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(told, ElementsAre(0, 1));
}

TEST_F(GpuStepsTest, ATransferIsNoWorkAndIsToldOfInItsTurn) {
  ParsedText parsed = Parse(
      "program 1\nbuffer @in read 32\n%x = input @in : i32[8]\n%y = add %x, %x\n"
      "send %y peer=\"p\" key=\"k\"\n");
  ASSERT_TRUE(parsed.problems.empty()) << parsed.problems[0].text;
  const GpuProgram made = Made(parsed.program);
  Memory memory = Bind(made, {testing::BytesOfValues(std::vector<int32_t>(8, 3))});
  std::vector<int> values;  // of the slot that is sent, after each step
  GpuMachine::Aside aside;
  ASSERT_TRUE(Run(made, memory, aside, nullptr, [&](size_t) {
                int value = 0;
                std::memcpy(&value, memory.scratch.data(), sizeof(value));
                values.push_back(value);
              }).ok());
  EXPECT_THAT(values, ElementsAre(6, 6));
}

}  // namespace
}  // namespace ferry::compute
