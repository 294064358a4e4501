// SPDX-License-Identifier: Apache-2.0
// Generated kernels, made by the host's compiler and run by the CPU in place of a GPU: their
// results are the reference's, to the bit but for functions and products.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compute/cuda/gpu_plan.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"
#include "tests/compute/cuda/kernel_programs.h"
#include "tests/compute/cuda/runs/host_kernels.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/program_weaver.h"
#include "tests/compute/reference/evaluate.h"

namespace ferry::compute {
namespace {

using testing::Bytes;

GpuPlan PlanOf(const Program& program, uint32_t alignment = 256) {
  GpuOptions options;
  options.buffer_alignment = alignment;
  options.library_products = false;
  absl::StatusOr<GpuPlan> plan = MakeGpuPlan(program, kGpuArchs[0], options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : GpuPlan();
}

// Compares many programs with the reference, with one run of the compiler.
void CompareAll(const std::vector<Program>& programs) {
  std::vector<GpuPlan> plans;
  std::vector<const GpuPlan*> pointers;
  for (const Program& program : programs) plans.push_back(PlanOf(program));
  for (const GpuPlan& plan : plans) pointers.push_back(&plan);
  const std::unique_ptr<testing::HostKernels> kernels = testing::HostKernels::Make(pointers);
  ASSERT_NE(kernels, nullptr);
  for (size_t i = 0; i < programs.size(); ++i) {
    std::vector<testing::Memory> reference;
    for (Bytes& bytes : testing::RandomBuffers(programs[i], i)) {
      reference.emplace_back(std::move(bytes));
    }
    testing::Evaluate(programs[i], reference);
    const std::vector<Bytes> got =
        testing::RunGpuPlan(plans[i], testing::RandomBuffers(programs[i], i), *kernels);
    for (size_t j = 0; j < got.size(); ++j) {
      const std::string difference = reference[j].DifferenceOf(got[j]);
      ASSERT_EQ(difference, "") << "@" << programs[i].buffers[j].name << " of program " << i << "\n"
                                << Print(programs[i]) << ToText(plans[i], true);
    }
  }
}

void CompareRandomOnGpu(uint64_t first, uint64_t count, testing::GeneratorOptions options) {
  std::vector<Program> programs;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    options.transfers = false;
    Program program = testing::ProgramGenerator(seed, options).Make();
    testing::StoreAll(program);
    programs.push_back(seed % 4 == 0 ? Simplify(program) : std::move(program));
  }
  CompareAll(programs);
}

TEST(GpuRunTest, AllTemplatesOfAllTypesAreAsTheReferenceSays) {
  CompareAll(testing::KernelPrograms());
}
TEST(GpuRunTest, SmallRandomProgramsAreAsTheReferenceSays) { CompareRandomOnGpu(0, 40, {60, 5}); }
TEST(GpuRunTest, RandomProgramsOfSeveralBlocksAreAsTheReferenceSays) {
  CompareRandomOnGpu(2000, 20, {25, 24});
}
TEST(GpuRunTest, WovenProgramsAreAsTheReferenceSays) {
  std::vector<Program> programs;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    programs.push_back(Simplify(testing::Weaver(seed, seed % 3 == 0 ? 24 : 4).Make()));
  }
  CompareAll(programs);
}

}  // namespace
}  // namespace ferry::compute
