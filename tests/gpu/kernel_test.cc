// SPDX-License-Identifier: Apache-2.0
// Generated kernels on a GPU: compiled for it, loaded by the driver, and compared with the
// reference, to the bit but for functions and products.
#include <stdlib.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/host/host_program.h"
#include "compute/passes/passes.h"
#include "tests/compute/cuda/runs/byte_programs.h"
#include "tests/compute/program_runs.h"
#include "tests/gpu/kernel_fixture.h"

namespace ferry::testing {
namespace {

namespace fc = ferry::compute;
using fc::testing::Bytes;

constexpr uint64_t kAll = uint64_t{1} << 32;

// So many kernels are compiled beforehand only: tools/bundle --kernels.
class GpuManyKernelsTest : public GpuKernelTest, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    GpuKernelTest::SetUp();
    if (!ready() || kernels_->has_directory()) return;
    kernels_.reset();
    GTEST_SKIP() << "NEEDS KERNELS THAT WERE COMPILED BEFOREHAND: FERRY_GPU_KERNELS";
  }
  void ExpectNothingCompiled() { EXPECT_EQ(ready() ? kernels_->compiled() : 0, 0); }
};

constexpr uint64_t kShards = 10;
constexpr uint64_t kOfShard = kRandomPrograms / kShards;

TEST_P(GpuManyKernelsTest, RandomProgramsAreAsTheReferenceSays) {
  CompareSome(Suite::kRandom, kOfShard * static_cast<uint64_t>(GetParam()), kOfShard);
  ExpectNothingCompiled();
}
INSTANTIATE_TEST_SUITE_P(Random, GpuManyKernelsTest, ::testing::Range(0, int{kShards}));

class GpuAllKernelsTest : public GpuManyKernelsTest {};
// FERRY_GPU_EVERY=10: every tenth program, for tools that take half a minute for those of a second.
TEST_P(GpuAllKernelsTest, ProgramsAreAsTheReferenceSays) {
  const char* const every = getenv("FERRY_GPU_EVERY");
  const uint64_t step = every == nullptr ? 1 : strtoull(every, nullptr, 10);
  ASSERT_GT(step, 0u) << "FERRY_GPU_EVERY=" << every << " is no number of programs";
  CompareSome(kSuites[GetParam()], 0, kAll, step);
  ExpectNothingCompiled();
}
INSTANTIATE_TEST_SUITE_P(Suites, GpuAllKernelsTest,
                         ::testing::Range(0, static_cast<int>(std::size(kSuites)) - 1));

TEST_F(GpuKernelTest, SmallRandomProgramsAreAsTheReferenceSays) {
  CompareSome(Suite::kRandom, 0, 24);
}
TEST_F(GpuKernelTest, RandomProgramsOfSeveralBlocksAreAsTheReferenceSays) {
  CompareSome(Suite::kBlocks, 0, 6);
}
TEST_F(GpuKernelTest, WovenProgramsAreAsTheReferenceSays) { CompareSome(Suite::kWoven, 0, 8); }
// Some of each template and type.
TEST_F(GpuKernelTest, TemplatesAreAsTheReferenceSays) {
  CompareSome(Suite::kTemplates, 0, kAll, 5);
}
TEST_F(GpuKernelTest, ChecksumsAndDeltasAreAsTheReferenceSays) {
  CompareSome(Suite::kBytes, 0, kAll);
}
// What GPUs round by instructions.
TEST_F(GpuKernelTest, NumbersAreRoundedAsTheReferenceSays) {
  CompareSome(Suite::kNumbers, 0, kAll);
}

// What runs until kernels are compiled in full.
TEST_F(GpuKernelTest, FirstTiersAreAsTheReferenceSays) {
  CompareSome(Suite::kTemplates, 2, kAll, 9, fc::Tier::kFirst);
  CompareSome(Suite::kBytes, 0, kAll, 1, fc::Tier::kFirst);
  CompareSome(Suite::kWoven, 0, 6, 1, fc::Tier::kFirst);
}

// More blocks of threads than one adds up at a time; what the host makes of it, the GPU makes too.
TEST_F(GpuKernelTest, LargeDeltasAreThoseOfTheHost) {
  for (const auto& [bytes, block, changed] :
       {std::tuple<uint64_t, uint64_t, uint64_t>{(uint64_t{96} << 20) + 40, 64, 50},
        {(uint64_t{600} << 20) + 4000, 4096, 40},
        {uint64_t{32} << 20, 512, 1}}) {
    if (HasFailure() || !ready()) return;
    const uint64_t blocks = (bytes + block - 1) / block;
    SuiteProgram made;
    made.program = fc::Simplify(fc::testing::DeltaProgram(bytes, block, blocks / changed + 1));
    const fc::Program& program = made.program;
    std::vector<Bytes> buffers;
    for (const fc::Buffer& buffer : program.buffers) buffers.emplace_back(buffer.bytes);
    buffers[0] = fc::testing::RandomBytes(bytes, 1);
    buffers[1] = buffers[0];
    for (uint64_t i = 0; i < blocks; i += changed) buffers[1][i * block] ^= std::byte{1};
    const absl::StatusOr<fc::HostProgram> host = fc::HostProgram::Make(program, 8);
    ASSERT_TRUE(host.ok()) << host.status();
    std::vector<std::byte> scratch(host->scratch_bytes() + 64);
    auto* const aligned =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    std::vector<Bytes> expected = buffers;
    std::vector<absl::Span<std::byte>> spans;
    for (Bytes& one : expected) spans.push_back(absl::MakeSpan(one));
    host->Run(spans, {aligned, host->scratch_bytes()});
    EXPECT_TRUE(expected[0] == buffers[1]);
    EXPECT_TRUE(expected[5] == expected[6]);
    const std::vector<Bytes> got = Run(made, buffers);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(got[i] == expected[i])
          << "@" << program.buffers[i].name << " of blocks of " << block;
    }
  }
}

}  // namespace
}  // namespace ferry::testing
