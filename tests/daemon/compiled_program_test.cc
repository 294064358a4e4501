// SPDX-License-Identifier: Apache-2.0
// What a program may cost that is compiled for a GPU. The GPU is the fake driver's; cuBLASLt is a
// fake, too.
#include "daemon/job/compiled_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/cuda/cublaslt_library.h"
#include "device/cuda/cuda_device.h"
#include "tests/daemon/support.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Sums of `rows` rows, each longer than one warp takes: their parts are in scratch.
std::string Sums(int rows) {
  return absl::StrCat("program 1\nbuffer @x read ", rows * 36864, "\nbuffer @y write ", rows * 4,
                      "\n%x = input @x : f32[", rows, ",9216]\n",
                      "%s = reduce %x reduction=sum dimensions=[1]\nstore @y, %s\n");
}

// A product of two matrices of `side` x `side` elements, `trips` times.
std::string Product(const std::string& dtype, uint64_t side, int trips = 1) {
  const uint64_t bytes = side * side * (dtype == "f32" ? 4 : 2);
  const std::string type = absl::StrCat(" : ", dtype, "[", side, ",", side, "]\n");
  return absl::StrCat("program 1\nbuffer @a read ", bytes, "\nbuffer @b read ", bytes,
                      "\nbuffer @c write ", bytes, "\nrepeat trips=", trips, " (%i)\n%a = input @a",
                      type, "%b = input @b", type,
                      "%c = dot_general %a, %b lhs_contract=[1] rhs_contract=[0] accumulate=f32\n",
                      "store @c, %c\nyield\n");
}

class CompiledProgramTest : public ::testing::Test {
 protected:
  CompileResult Result(const std::string& text, const JobLimits& limits = {}) {
    const GpuInfo& gpu = device_.info();
    Target target{*compute::GpuArchOf(gpu.major, gpu.minor), &store_};
    target.multiplier = multiplier_.get();
    return CompileProgram(text, limits, target);
  }
  absl::Status Compile(const std::string& text, const JobLimits& limits = {}) {
    return Result(text, limits).status;
  }

  CudaDevice device_{FAKE_CUDA_LIBRARY, FindGpus(FAKE_CUDA_LIBRARY)->front(), {0}};
  compute::KernelStore store_{{{.program = FERRY_COMPILE, .nvrtc = FAKE_NVRTC_LIBRARY}, {}, "", 0}};
  compute::CublasLtLibrary library_{FAKE_CUBLASLT_LIBRARY, 13000};
  // Null: our own kernels multiply.
  std::unique_ptr<compute::GpuMultiplier> multiplier_ =
      std::make_unique<compute::GpuMultiplier>(device_, library_);
};

TEST_F(CompiledProgramTest, AProgramWithTooLargeALaunchIsRefusedWithTheNumbers) {
  JobLimits limits;
  limits.gpu_launch_flops = uint64_t{1} << 23;
  const absl::Status refused = Compile(Sums(480), limits);
  EXPECT_THAT(refused, Is("RESOURCE_EXHAUSTED/BATCH_TOO_LARGE",
                          "a launch may have 8388608 (limits.gpu_launch_flops)"));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("is one launch of a GPU, of 4423680 flops"));
  EXPECT_THAT(Compile(Sums(1), limits), Is("OK"));
  limits.gpu_launch_flops = JobLimits().gpu_launch_flops;
  EXPECT_THAT(Compile(Sums(480), limits), Is("OK"));
}

// 2^26 elements in one line are one thread's, in 2^14 lines those of as many.
TEST_F(CompiledProgramTest, ALaunchOfFewThreadsCountsAsLongAsItTakes) {
  const auto compile = [&](const std::string& dims, int dimension) {
    const std::string text = absl::StrCat(
        "program 1\nbuffer @x read 268435456\nbuffer @y write 268435456\n%x = input @x : f32[",
        dims, "]\n%y = cumulative_sum %x dimension=", dimension, "\nstore @y, %y\n");
    return Compile(text);
  };
  EXPECT_THAT(
      compile("67108864", 0),
      Is("RESOURCE_EXHAUSTED/BATCH_TOO_LARGE",
         "603979776 of both, by 1 thread, which is as long as 9895604649984 by a whole GPU; "
         "a launch may have 2199023255552"));
  EXPECT_THAT(compile("16384,4096", 1), Is("OK"));
}

// Tensor cores are faster than a GPU is at other flops, so theirs count as less.
TEST_F(CompiledProgramTest, ProductsByTensorCoresCountAsTheTimeThatTheyTake) {
  JobLimits limits;
  limits.flops = uint64_t{1} << 60;
  EXPECT_THAT(Compile(Product("bf16", 12'288), limits), Is("OK"));
  EXPECT_THAT(Compile(Product("bf16", 32'768), limits),
              Is("RESOURCE_EXHAUSTED/BATCH_TOO_LARGE",
                 "of 8796093022208 flops and 6442450944 bytes read and written, 8802535473152 of "
                 "both (8 flops of tensor cores count as 1); a launch may have 2199023255552"));
  const absl::Status refused = Compile(Product("f32", 12'288), limits);
  EXPECT_THAT(refused, Is("RESOURCE_EXHAUSTED/BATCH_TOO_LARGE", "of 3710851743744 flops"));
  EXPECT_THAT(std::string(refused.message()), Not(HasSubstr("tensor")));
  multiplier_ = nullptr;
  EXPECT_THAT(Compile(Product("bf16", 12'288), limits),
              Is("RESOURCE_EXHAUSTED/BATCH_TOO_LARGE", "of 3710851743744 flops"));
}

// A vector by a matrix whose elements take more to make than to multiply.
TEST_F(CompiledProgramTest, WhatIsComputedBeforeAProductCountsInFull) {
  const std::string before =
      "program 1\nbuffer @a read 2048\nbuffer @b read 2097152\nbuffer @c write 2048\n"
      "%a = input @a : bf16[1,1024]\n%b0 = input @b : bf16[1024,1024]\n";
  std::string ops;
  for (int i = 0; i < 8; ++i) absl::StrAppend(&ops, "%b", i + 1, " = add %b", i, ", %b", i, "\n");
  const CompileResult made = Result(absl::StrCat(
      before, ops,
      "%c = dot_general %a, %b8 lhs_contract=[1] rhs_contract=[0] accumulate=f32\nstore @c, %c\n"));
  ASSERT_THAT(made.status, Is("OK"));
  const compute::Cost& cost = made.program->cost;
  constexpr uint64_t kProduct = uint64_t{2} * 1024 * 1024;
  EXPECT_EQ(cost.flops, kProduct + uint64_t{8} * 1024 * 1024);
  ASSERT_EQ(made.program->work_by_step.size(), 1u) << made.plan;
  EXPECT_EQ(made.program->work,
            cost.flops - kProduct + kProduct / 8 + cost.bytes_read + cost.bytes_written);
}

TEST_F(CompiledProgramTest, AJobOfProductsByTensorCoresMayHaveMoreOfThem) {
  const uint64_t moved = uint64_t{3} * 8192 * 8192 * 2;
  const uint64_t flops = uint64_t{2} * 8192 * 8192 * 8192;
  const CompileResult made = Result(Product("bf16", 8192, 16));
  ASSERT_THAT(made.status, Is("OK"));
  EXPECT_EQ(made.program->work, 16 * (flops / 8 + moved));
  EXPECT_EQ(made.program->work_by_step, std::vector<uint64_t>{made.program->work});
  EXPECT_THAT(Compile(Product("bf16", 8192, 32)),
              Is("RESOURCE_EXHAUSTED/BATCH_TOO_LARGE",
                 "(a function such as tanh counts as 8, 8 flops of tensor cores count as 1)"));
  const absl::Status refused = Compile(Product("f32", 8192, 16));
  EXPECT_THAT(refused, Is("RESOURCE_EXHAUSTED/BATCH_TOO_LARGE", "asks for 17592186044416 flops"));
  EXPECT_THAT(std::string(refused.message()), Not(HasSubstr("tensor")));
}

// The library does the step's work, whatever few threads do before and after it.
TEST(BusyThreadsTest, AProductByALibraryKeepsAWholeGpuBusy) {
  compute::GpuPlan plan;
  for (const auto& [kind, busy] : {std::pair(compute::GpuCommand::Kind::kLaunch, uint64_t{8}),
                                   {compute::GpuCommand::Kind::kProduct, 0},
                                   {compute::GpuCommand::Kind::kCopy, 0}}) {
    compute::GpuCommand& command = plan.commands.emplace_back();
    command.kind = kind;
    command.busy = busy;
    command.step = kind == compute::GpuCommand::Kind::kCopy ? 2 : 1;
  }
  compute::GpuCommand& repeat = plan.commands.emplace_back();
  repeat.kind = compute::GpuCommand::Kind::kRepeat;
  repeat.body.push_back(plan.commands[0]);
  repeat.body[0].step = 4;
  const auto busy = compute::BusyThreadsOf(plan);
  EXPECT_EQ(busy.size(), 2u);
  EXPECT_EQ(busy.at(1), compute::kThreadsOfGpu);
  EXPECT_EQ(busy.at(4), 8u);
  EXPECT_EQ(compute::LaunchWorkOf(1000, 8), 1000 * compute::kThreadsOfGpu / 8);
  EXPECT_EQ(compute::LaunchWorkOf(1000, compute::kThreadsOfGpu), 1000u);
}

}  // namespace
}  // namespace ferry::testing
