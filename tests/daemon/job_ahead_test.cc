// SPDX-License-Identifier: Apache-2.0
// Runs of a GPU are queued behind those that are under way. The GPU is the fake driver's, whose
// kernels wait while the test holds them; the compute thread is the test's.
#include <fake_cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/flight_recorder.h"
#include "daemon/job/compiled_program.h"
#include "daemon/job/job_runner.h"
#include "device/timeline.h"
#include "tests/compute/doublings.h"
#include "tests/daemon/support.h"

namespace ferry::testing {
namespace {

using compute::testing::Doublings;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SessionId kSession(5);
constexpr uint32_t kBatch = 3;

// Sums of `rows` rows, each longer than one warp takes: their parts are in scratch.
std::string Sums(int rows) {
  return absl::StrCat("program 1\nbuffer @x read ", rows * 36864, "\nbuffer @y write ", rows * 4,
                      "\n%x = input @x : f32[", rows, ",9216]\n",
                      "%s = reduce %x reduction=sum dimensions=[1]\nstore @y, %s\n");
}

fake_cuda_counts Counts() {
  fake_cuda_counts counts;
  fake_cuda_get_counts(&counts);
  return counts;
}

void Hold(bool hold) { fake_cuda_hold_copies(hold ? 1 : 0); }

class JobAheadTest : public ::testing::Test {
 protected:
  JobAheadTest() {
    std::vector<GpuInfo> found = *FindGpus(FAKE_CUDA_LIBRARY);
    device_ = std::make_unique<CudaDevice>(FAKE_CUDA_LIBRARY, found[0], std::vector<int>{0});
    memory_ = *device_->Map({MemoryKind::kCudaAllocate, uint64_t{8} << 20}, {});
    std::memset(memory_->data(), 0, memory_->bytes());  // the fake GPU's memory is the host's
    runner_ = std::make_unique<JobRunner>(
        std::make_unique<GpuComputer>(*device_),
        JobRunner::MostKept{uint64_t{1} << 20, uint64_t{1} << 20}, [](const Doorbell&, bool) {},
        [this](TransferId job, const absl::Status& why) { Tell(job, why); });
  }
  void TearDown() override {
    Hold(false);
    fake_cuda_configure("fail_copy=0;sticky=0");
    runner_->Stop();
    runner_ = nullptr;
  }

  std::shared_ptr<const CompiledProgram> Compile(const std::string& text) {
    const GpuInfo& gpu = device_->info();
    CompileResult made =
        CompileProgram(text, {}, {*compute::GpuArchOf(gpu.major, gpu.minor), &store_});
    EXPECT_THAT(made.status, Is("OK"));
    return made.program;
  }
  // Memory for the program's buffers; the first number of the first one is 1.
  std::vector<absl::Span<std::byte>> Bind(const CompiledProgram& program) {
    std::vector<absl::Span<std::byte>> buffers;
    for (const compute::Buffer& buffer : program.buffers) {
      buffers.push_back({memory_->data() + taken_, buffer.bytes});
      taken_ += (buffer.bytes + 255) / 256 * 256;
      EXPECT_LE(taken_, memory_->bytes());
    }
    const int one = 1;
    std::memcpy(buffers[0].data(), &one, sizeof(one));
    return buffers;
  }
  static int ValueOf(absl::Span<const std::byte> buffer) {
    int value = 0;
    std::memcpy(&value, buffer.data(), sizeof(value));
    return value;
  }
  TransferId Next(SessionId session = kSession) { return MakeTransferId(session, ++sequence_); }
  void Tell(TransferId job, const absl::Status& status) {
    told_.push_back(absl::StrCat(SequenceOf(job), " ", NameOf(status)));
    texts_[job] = std::string(status.message());
  }
  // Posts a run; returns its buffers.
  std::vector<absl::Span<std::byte>> Run(const std::shared_ptr<const CompiledProgram>& program,
                                         const std::atomic<bool>* stop = nullptr) {
    std::vector<absl::Span<std::byte>> buffers = Bind(*program);
    const TransferId job = Next();
    runner_->Run({.id = job, .program = *program, .memory = buffers, .stop = stop},
                 [this, job, program](const absl::Status& status, uint64_t left) {
                   EXPECT_EQ(left, 0u);
                   Tell(job, status);
                 });
    return buffers;
  }
  // The first run opens the context, and loads the kernel.
  void RunFirst(const std::shared_ptr<const CompiledProgram>& program) {
    Run(program);
    PollUntilIdle();
    EXPECT_THAT(told_, ElementsAre("1 OK"));
  }
  // Prepares a batch of so many runs of the program, and asks for its first firing.
  PreparedBatch& Fire(const std::shared_ptr<const CompiledProgram>& program, uint32_t runs,
                      const std::atomic<bool>* stop = nullptr,
                      const std::vector<Joint>& joints = {}) {
    batch_ = pages_->Prepare(kBatch, runs);
    std::vector<JobRunner::PreparedJob> jobs;
    for (uint32_t i = 0; i < runs; ++i) {
      buffers_.push_back(Bind(*program));
      jobs.push_back({Next(), 0, program, buffers_.back(), joints, stop});
    }
    runner_->Arm(*batch_, std::move(jobs));
    batch_->Define(1);
    return *batch_;
  }
  void PollWhile(const std::function<bool()>& wanted) {
    while (wanted()) {
      if (!runner_->Poll()) std::this_thread::yield();
    }
  }
  void PollUntilIdle() {
    PollWhile([&] { return runner_->Busy() || !runner_->PrepareToPark(); });
  }

  compute::KernelStore store_{{{.program = FERRY_COMPILE, .nvrtc = FAKE_NVRTC_LIBRARY}, {}, "", 0}};
  std::unique_ptr<TimelinePages> pages_ = *TimelinePages::Create();
  std::unique_ptr<PreparedBatch> batch_, received_;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<JobRunner> runner_;
  std::vector<std::vector<absl::Span<std::byte>>> buffers_;  // of the runs that Fire has prepared
  uint64_t taken_ = 0;
  uint64_t sequence_ = 0;
  std::vector<std::string> told_;  // "3 OK": how the third run has ended
  std::map<TransferId, std::string> texts_;
};

TEST_F(JobAheadTest, ARunIsQueuedBehindOneThatIsUnderWay) {
  const auto program = Compile(Doublings(1));
  RunFirst(program);
  Hold(true);
  const fake_cuda_counts before = Counts();
  const auto first = Run(program);
  const auto second = Run(program);
  EXPECT_EQ(Counts().launches - before.launches, 2u);
  EXPECT_TRUE(runner_->Busy());
  EXPECT_FALSE(runner_->Poll());
  EXPECT_EQ(told_.size(), 1u);
  Hold(false);
  PollUntilIdle();
  EXPECT_THAT(told_, ElementsAre("1 OK", "2 OK", "3 OK"));
  EXPECT_EQ(ValueOf(first[1]), 2);
  EXPECT_EQ(ValueOf(second[1]), 2);
  EXPECT_EQ(Counts().waits, before.waits) << "nobody has waited in the driver";
  EXPECT_GT(runner_->run_time(), absl::ZeroDuration());
}

// As one that sends: each step is told of before the run is over, of whichever run it is.
TEST_F(JobAheadTest, ARunWhoseStepsAreHeardOfIsQueuedAheadToo) {
  const auto program = Compile(Doublings(2));
  RunFirst(program);
  Hold(true);
  const fake_cuda_counts before = Counts();
  const auto run = [&] {
    const TransferId job = Next();
    runner_->Run({.id = job,
                  .program = *program,
                  .memory = Bind(*program),
                  .step_over =
                      [this, job](size_t step) {
                        told_.push_back(absl::StrCat(SequenceOf(job), " step ", step));
                      }},
                 [this, job](const absl::Status& status, uint64_t) { Tell(job, status); });
  };
  run();
  run();
  EXPECT_EQ(Counts().launches - before.launches, 4u);
  EXPECT_EQ(told_.size(), 1u);
  Hold(false);
  PollUntilIdle();
  const auto told_of = [this](const std::string& job) {
    std::vector<std::string> told;
    std::copy_if(told_.begin(), told_.end(), std::back_inserter(told),
                 [&](const std::string& text) { return text.starts_with(job); });
    return told;
  };
  EXPECT_THAT(told_of("2"), ElementsAre("2 step 0", "2 step 1", "2 OK"));
  EXPECT_THAT(told_of("3"), ElementsAre("3 step 0", "3 step 1", "3 OK"));
  EXPECT_EQ(Counts().waits, before.waits) << "nobody has waited in the driver";
}

// Whoever disarms it waits for what is under way, and hears of its steps.
TEST_F(JobAheadTest, AFiringThatFiresASendEarlyIsQueuedAhead) {
  const auto program = Compile(Doublings(2));
  RunFirst(program);
  received_ = pages_->Prepare(kBatch + 1, 1);
  received_->Arm();
  Hold(true);
  const fake_cuda_counts before = Counts();
  Fire(program, 1, nullptr, {{.batch = received_.get(), .sends = true, .step = 0}});
  while (runner_->Poll()) continue;
  Run(program);
  EXPECT_EQ(Counts().launches - before.launches, 4u);
  EXPECT_FALSE(received_->Wants(1)) << "the first step is under way";
  std::thread gate([] { Hold(false); });
  runner_->Disarm(*batch_);
  gate.join();
  EXPECT_TRUE(received_->Wants(1));
  EXPECT_FALSE(received_->Wants(2));
}

TEST_F(JobAheadTest, ManyPostedRunsLeaveRoomForFirings) {
  const auto program = Compile(Doublings(1));
  RunFirst(program);
  Hold(true);
  const fake_cuda_counts before = Counts();
  for (int i = 0; i < 2 * JobRunner::kFiringsAhead; ++i) Run(program);
  const PreparedBatch& batch = Fire(program, 1);
  while (runner_->Poll()) continue;
  EXPECT_EQ(Counts().launches - before.launches, 2 * JobRunner::kFiringsAhead + 1);
  Hold(false);
  PollWhile([&] { return !batch.IsOver(1); });
}

TEST_F(JobAheadTest, KernelsMayBeginBeforeTheOneAheadIsOver) {
  const auto program = Compile(Doublings(3));
  RunFirst(program);
  const fake_cuda_counts before = Counts();
  Run(program);
  PollUntilIdle();
  EXPECT_EQ(Counts().launches - before.launches, 3u);
  EXPECT_EQ(Counts().early_launches - before.early_launches, 3u);
}

TEST_F(JobAheadTest, AFiringThatIsJoinedToReceivesLeavesRoomForCopies) {
  const auto program = Compile(Doublings(1));
  RunFirst(program);
  const std::unique_ptr<Copier> copier = device_->MakeCopier(CopyUse::kPrepared);
  copier->Start({{memory_->data(), memory_->data(), 8}});  // under way until it is taken
  const uint64_t before = Counts().shared_bytes;
  Run(program);
  PollUntilIdle();
  EXPECT_EQ(Counts().shared_bytes, before) << "nothing of it travels";
  received_ = pages_->Prepare(kBatch + 1, 1);
  received_->Arm();
  received_->Define(1);
  received_->Over(1, 1);
  const PreparedBatch& batch = Fire(program, 1, nullptr, {{.batch = received_.get()}});
  PollWhile([&] { return !batch.IsOver(1); });
  EXPECT_GT(Counts().shared_bytes, before);
  PollWhile([&] { return !copier->TakeOver().has_value(); });
}

TEST_F(JobAheadTest, ABatchOfRunsIsQueuedUpToItsBoundAndWaitsForNone) {
  constexpr uint32_t kRuns = 10;
  const auto program = Compile(Doublings(1));
  RunFirst(program);
  Hold(true);
  const fake_cuda_counts before = Counts();
  const PreparedBatch& batch = Fire(program, kRuns);
  while (runner_->Poll()) continue;
  EXPECT_EQ(Counts().launches - before.launches, JobRunner::kFiringsAhead);
  EXPECT_TRUE(runner_->PrepareToPark()) << "without room there is nothing to do";
  EXPECT_FALSE(batch.IsOver(1));
  Hold(false);
  PollWhile([&] { return !batch.IsOver(1); });
  EXPECT_EQ(Counts().launches - before.launches, kRuns);
  EXPECT_EQ(Counts().waits, before.waits);
  for (const auto& buffers : buffers_) EXPECT_EQ(ValueOf(buffers[1]), 2);
  EXPECT_EQ(told_.size(), 1u) << "none has failed";
  runner_->Disarm(*batch_);
}

// What a run writes the next one reads: the order of the stream is enough.
TEST_F(JobAheadTest, ARunReadsWhatTheOneBeforeHasWritten) {
  const auto program = Compile(Doublings(1));
  const auto buffers = Bind(*program);
  const auto back = std::vector{buffers[1], buffers[0]};
  Hold(true);
  for (int i = 0; i < 6; ++i) {
    runner_->Run({.id = Next(), .program = *program, .memory = i % 2 == 0 ? buffers : back},
                 [](const absl::Status& status, uint64_t) { EXPECT_THAT(status, Is("OK")); });
  }
  Hold(false);
  PollUntilIdle();
  EXPECT_EQ(ValueOf(buffers[0]), 64);
}

TEST_F(JobAheadTest, ADeadlineEndsARunBetweenLaunchesAndNoneBeforeIt) {
  const auto one = Compile(Doublings(1));
  const auto three = Compile(Doublings(3));
  Hold(true);
  const auto first = Run(one);
  // The deadline comes when the second launch of the second run is to be queued.
  std::atomic<bool> stop{false};
  const uint64_t launches = Counts().launches;
  std::thread control([&] {
    while (Counts().launches == launches) std::this_thread::yield();
    stop = true;
    Hold(false);
  });
  // Enough launches that not all are queued before the others are over.
  const auto many = Compile(Doublings(60));
  const auto second = Run(many, &stop);
  control.join();
  const auto third = Run(three);
  PollUntilIdle();
  EXPECT_THAT(told_, ElementsAre("1 OK", "2 CANCELLED/CANCELLED", "3 OK"));
  EXPECT_THAT(texts_[MakeTransferId(kSession, 2)], HasSubstr("stopped before step "));
  EXPECT_EQ(ValueOf(first[1]), 2);
  EXPECT_EQ(ValueOf(second[60]), 0);
  EXPECT_EQ(ValueOf(third[3]), 8);
}

TEST_F(JobAheadTest, WhatIsNotQueuedOfABatchThatEndsIsNotLaunched) {
  const auto program = Compile(Doublings(1));
  Hold(true);
  const uint64_t before = Counts().launches;
  std::atomic<bool> stop{false};
  const PreparedBatch& batch = Fire(program, 6, &stop);
  while (runner_->Poll()) continue;
  stop = true;
  std::thread gate([] { Hold(false); });
  runner_->Disarm(*batch_);  // waits for what is under way
  gate.join();
  EXPECT_FALSE(runner_->Busy());
  EXPECT_EQ(Counts().launches - before, JobRunner::kFiringsAhead);
  EXPECT_FALSE(batch.IsOver(1));
  EXPECT_EQ(std::count_if(buffers_.begin(), buffers_.end(),
                          [](const auto& buffers) { return ValueOf(buffers[1]) == 2; }),
            static_cast<int>(JobRunner::kFiringsAhead));
}

TEST_F(JobAheadTest, ALaunchThatIsRefusedIsThatOfItsRunAlone) {
  const auto program = Compile(Doublings(1));
  RunFirst(program);
  fake_cuda_configure("fail_copy=2");
  const auto first = Run(program);
  const auto second = Run(program);
  const auto third = Run(program);
  PollUntilIdle();
  EXPECT_THAT(told_, ElementsAre("1 OK", "2 OK", HasSubstr("3 INTERNAL"), "4 OK"));
  EXPECT_THAT(texts_[MakeTransferId(kSession, 3)], HasSubstr("LAUNCH_OUT_OF_RESOURCES"));
  EXPECT_EQ(ValueOf(first[1]), 2);
  EXPECT_EQ(ValueOf(second[1]), 0);
  EXPECT_EQ(ValueOf(third[1]), 2);
}

TEST_F(JobAheadTest, AFiringThatIsRefusedFailsItsJobAlone) {
  const auto program = Compile(Doublings(1));
  fake_cuda_configure("fail_copy=2");
  const PreparedBatch& batch = Fire(program, 3);
  PollUntilIdle();
  EXPECT_THAT(told_, ElementsAre(HasSubstr("2 INTERNAL")));
  EXPECT_FALSE(batch.IsOver(1));
  EXPECT_EQ(ValueOf(buffers_[0][1]), 2);
  EXPECT_EQ(ValueOf(buffers_[1][1]), 0);
  EXPECT_EQ(ValueOf(buffers_[2][1]), 2);
  runner_->Disarm(*batch_);
}

TEST_F(JobAheadTest, TheFlightRecorderHasHowManyLaunchesARunWas) {
  RunFirst(Compile(Sums(1)));
  std::vector<std::pair<uint64_t, uint64_t>> launched;
  for (const FlightRecorder::Entry& entry : FlightRecorder::Get().Snapshot()) {
    if (entry.what != std::string("job.launched")) continue;
    if (SessionOf(TransferId(entry.a)) == kSession) launched.emplace_back(entry.b, entry.c);
  }
  ASSERT_FALSE(launched.empty());
  EXPECT_EQ(launched.back(), std::pair(uint64_t{1}, uint64_t{2}));  // chunks, then their sum
}

// The GPU has told that the first run is over, so that the daemon's last words are of the second,
// though all three were under way when somebody looked last.
TEST(JobAheadDeathTest, AFaultIsThatOfTheRunThatMadeIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  class Faulty : public JobAheadTest {
   public:
    void TestBody() override {
      const auto program = Compile(Doublings(1));
      Hold(true);
      fake_cuda_configure("sticky=2");
      for (int i = 0; i < 3; ++i) Run(program);
      Hold(false);
      PollUntilIdle();
    }
  };
  EXPECT_DEATH(Faulty().TestBody(),
               "GPUs of this process are lost; GPU-.* ran job 2 of session 5 \\(program "
               "[0-9a-f]{16}\\), then job 3 of session 5 \\(program");
}

TEST_F(JobAheadTest, ScratchThatMustGrowIsNotTakenFromRunsThatUseIt) {
  const auto small = Compile(Sums(1));
  const auto large = Compile(Sums(120));
  ASSERT_GT(small->scratch_bytes(), 0u);
  ASSERT_GT(large->scratch_bytes(), small->scratch_bytes());
  Run(small);
  PollUntilIdle();
  Hold(true);
  Run(small);
  Run(small);
  EXPECT_THAT(told_, ElementsAre("1 OK"));
  std::thread gate([] { Hold(false); });
  Run(large);
  gate.join();
  EXPECT_THAT(std::vector(told_.begin(), told_.begin() + 3), ElementsAre("1 OK", "2 OK", "3 OK"))
      << "told before the memory that they use was given back";
  PollUntilIdle();
  EXPECT_EQ(told_.size(), 4u);
}

TEST_F(JobAheadTest, StopWaitsForWhatIsUnderWayAndTellsNobody) {
  const auto program = Compile(Doublings(1));
  Hold(true);
  const auto buffers = Run(program);
  std::thread gate([] { Hold(false); });
  runner_->Stop();
  gate.join();
  EXPECT_EQ(ValueOf(buffers[1]), 2);
  EXPECT_FALSE(runner_->Busy());
  EXPECT_THAT(told_, IsEmpty());
}

}  // namespace
}  // namespace ferry::testing
