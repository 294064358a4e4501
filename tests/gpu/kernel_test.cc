// SPDX-License-Identifier: Apache-2.0
// Generated kernels on a GPU: compiled by NVRTC for it, loaded by the driver, and compared with the
// reference, to the bit but for functions and products.
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/cuda/kernel_compiler.h"
#include "compute/host/host_program.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "tests/compute/cuda/runs/byte_programs.h"
#include "tests/compute/cuda/runs/gpu_run.h"
#include "tests/compute/cuda/runs/kernel_programs.h"
#include "tests/compute/cuda/runs/number_programs.h"
#include "tests/compute/program_generator.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/program_weaver.h"
#include "tests/compute/reference/evaluate.h"
#include "tests/gpu/gpu_fixture.h"

namespace ferry::testing {
namespace {

namespace fc = ferry::compute;
using fc::testing::Bytes;

// What more of the driver these tests need.
struct ModuleApi {
  decltype(&::cuModuleLoadData) load = nullptr;
  decltype(&::cuModuleUnload) unload = nullptr;
  decltype(&::cuModuleGetFunction) find = nullptr;
  decltype(&::cuLaunchKernel) launch = nullptr;
  decltype(&::cuDeviceGetAttribute) attribute = nullptr;
};

class RealGpu : public fc::testing::GpuMachine {
 public:
  RealGpu(const GpuDriver& driver, const ModuleApi& api) : driver_(driver), api_(api) {}
  ~RealGpu() override {
    FreeAll();
    for (CUmodule module : modules_) api_.unload(module);
  }

  void Load(const fc::NvrtcApi& nvrtc, const fc::GpuPlan& plan, fc::Tier tier = fc::Tier::kFull) {
    std::string text;
    std::vector<std::string> names;
    for (const fc::GpuKernel& kernel : plan.kernels) {
      if (functions_.count(kernel.name) > 0) continue;
      absl::StrAppend(&text, fc::SourceOf(kernel));
      names.push_back(kernel.name);
    }
    if (names.empty()) return;
    const absl::StatusOr<fc::CompiledKernel> made = fc::CompileKernel(nvrtc, text, plan.arch, tier);
    ASSERT_TRUE(made.ok()) << made.status();
    CUmodule module = nullptr;
    ASSERT_EQ(api_.load(&module, made->cubin.data()), CUDA_SUCCESS);
    modules_.push_back(module);
    for (const std::string& name : names) {
      ASSERT_EQ(api_.find(&functions_[name], module, name.c_str()), CUDA_SUCCESS) << name;
    }
  }

  uint64_t Allocate(const Bytes& bytes) override {
    CUdeviceptr memory = 0;
    EXPECT_EQ(driver_.cuMemAlloc(&memory, std::max<size_t>(bytes.size(), 1)), CUDA_SUCCESS);
    memory_.push_back(memory);
    Write(memory, bytes);
    return memory;
  }
  Bytes Read(uint64_t address, uint64_t bytes) override {
    Bytes made(bytes);
    EXPECT_EQ(driver_.cuCtxSynchronize(), CUDA_SUCCESS);
    if (bytes > 0) {
      EXPECT_EQ(driver_.cuMemcpyDtoHAsync(made.data(), address, bytes, nullptr), CUDA_SUCCESS);
    }
    EXPECT_EQ(driver_.cuCtxSynchronize(), CUDA_SUCCESS);
    return made;
  }
  void Write(uint64_t address, const Bytes& bytes) override {
    if (bytes.empty()) return;
    EXPECT_EQ(driver_.cuMemcpyHtoDAsync(address, bytes.data(), bytes.size(), nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuCtxSynchronize(), CUDA_SUCCESS);
  }
  void Copy(uint64_t to, uint64_t from, uint64_t bytes) override { Write(to, Read(from, bytes)); }
  void FreeAll() override {
    for (CUdeviceptr memory : memory_) driver_.cuMemFree(memory);
    memory_.clear();
  }
  void Launch(const std::string& kernel, uint64_t blocks, uint32_t threads,
              const std::vector<std::pair<uint64_t, uint32_t>>& arguments) override {
    std::vector<uint64_t> numbers;  // little-endian: the first bytes of one are the number's
    for (const auto& argument : arguments) numbers.push_back(argument.first);
    std::vector<void*> pointers;
    for (uint64_t& number : numbers) pointers.push_back(&number);
    EXPECT_EQ(api_.launch(functions_.at(kernel), static_cast<unsigned>(blocks), 1, 1, threads, 1, 1,
                          0, nullptr, pointers.data(), nullptr),
              CUDA_SUCCESS)
        << kernel;
  }

 private:
  const GpuDriver& driver_;
  const ModuleApi& api_;
  std::vector<CUmodule> modules_;
  std::map<std::string, CUfunction> functions_;
  std::vector<CUdeviceptr> memory_;
};

class GpuKernelTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (driver_ == nullptr) return;
    if (fake()) GTEST_SKIP() << "NEEDS A REAL GPU: the fake runs no kernels";
    const char* library = getenv("FERRY_NVRTC_LIBRARY");
    const auto nvrtc = fc::LoadNvrtc(library == nullptr ? "" : library);
    if (!nvrtc.ok()) GTEST_SKIP() << "NEEDS NVRTC: " << nvrtc.status();
    nvrtc_ = *nvrtc;
    api_.load = driver_->Find<decltype(api_.load)>("cuModuleLoadData");
    api_.unload = driver_->Find<decltype(api_.unload)>("cuModuleUnload");
    api_.find = driver_->Find<decltype(api_.find)>("cuModuleGetFunction");
    api_.launch = driver_->Find<decltype(api_.launch)>("cuLaunchKernel");
    api_.attribute = driver_->Find<decltype(api_.attribute)>("cuDeviceGetAttribute");
    int major = 0;
    int minor = 0;
    ASSERT_CU(api_.attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    ASSERT_CU(api_.attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    const auto arch = fc::GpuArchOf(absl::StrCat("sm_", major, minor, "a"));
    if (!arch.ok()) GTEST_SKIP() << "NEEDS A GPU THAT IS KNOWN: " << arch.status();
    arch_ = *arch;
    ASSERT_CU(driver_->cuCtxSetCurrent(driver_->context(0)));
  }

  // With memory as it is at first, and after the program.
  void Compare(const fc::Program& program, uint64_t seed, const fc::CodeOptions& code = {},
               fc::Tier tier = fc::Tier::kFull) {
    if (nvrtc_ == nullptr) return;
    fc::GpuOptions options;
    options.code = code;
    options.library_products = false;
    const absl::StatusOr<fc::GpuPlan> plan = fc::MakeGpuPlan(program, arch_, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    RealGpu gpu(*driver_, api_);
    gpu.Load(*nvrtc_, *plan, tier);
    std::vector<fc::testing::Memory> reference;
    for (Bytes& bytes : fc::testing::RandomBuffers(program, seed)) {
      reference.emplace_back(std::move(bytes));
    }
    fc::testing::Evaluate(program, reference);
    const std::vector<Bytes> got =
        fc::testing::RunGpuPlan(*plan, fc::testing::RandomBuffers(program, seed), gpu);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(reference[i].DifferenceOf(got[i]), "")
          << "@" << program.buffers[i].name << " of seed " << seed << "\n"
          << fc::Print(program) << fc::ToText(*plan, true);
    }
  }

  void CompareRandom(uint64_t first, uint64_t count, fc::testing::GeneratorOptions options,
                     const fc::CodeOptions& code = {}) {
    for (uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
      fc::Program program = fc::testing::ProgramGenerator(seed, options).Make();
      fc::testing::StoreAll(program);
      Compare(seed % 4 == 0 ? fc::Simplify(program) : program, seed, code);
    }
  }

  const fc::NvrtcApi* nvrtc_ = nullptr;
  ModuleApi api_;
  fc::GpuArch arch_;
};

TEST_F(GpuKernelTest, SmallRandomProgramsAreAsTheReferenceSays) {
  CompareRandom(0, 12, {60, 5, false}, {1, 1});  // fast to compile
}
TEST_F(GpuKernelTest, RandomProgramsOfSeveralBlocksAreAsTheReferenceSays) {
  CompareRandom(2000, 6, {25, 24, false});
}
TEST_F(GpuKernelTest, WovenProgramsAreAsTheReferenceSays) {
  for (uint64_t seed = 0; seed < 8 && !HasFailure(); ++seed) {
    Compare(fc::Simplify(fc::testing::Weaver(seed, seed % 3 == 0 ? 24 : 4).Make()), seed);
  }
}

// Some of each template and type.
TEST_F(GpuKernelTest, TemplatesAreAsTheReferenceSays) {
  const std::vector<fc::Program> programs = fc::testing::KernelPrograms();
  for (size_t i = 0; i < programs.size() && !HasFailure(); i += 5) Compare(programs[i], i);
}
TEST_F(GpuKernelTest, ChecksumsAndDeltasAreAsTheReferenceSays) {
  const std::vector<fc::Program> programs = fc::testing::BytePrograms();
  for (size_t i = 0; i < programs.size() && !HasFailure(); ++i) Compare(programs[i], i);
}

// What runs until kernels are compiled in full.
TEST_F(GpuKernelTest, FirstTiersAreAsTheReferenceSays) {
  std::vector<fc::Program> programs;
  const std::vector<fc::Program> all = fc::testing::KernelPrograms();
  for (size_t i = 2; i < all.size(); i += 9) programs.push_back(all[i]);
  for (fc::Program& program : fc::testing::BytePrograms()) programs.push_back(std::move(program));
  for (uint64_t seed = 0; seed < 6; ++seed) {
    programs.push_back(fc::Simplify(fc::testing::Weaver(seed, 4).Make()));
  }
  for (size_t i = 0; i < programs.size() && !HasFailure(); ++i) {
    Compare(programs[i], i, fc::kFirstTierCode[0], fc::Tier::kFirst);
  }
}

// More blocks of threads than one adds up at a time; what the host makes of it, the GPU makes too.
TEST_F(GpuKernelTest, LargeDeltasAreThoseOfTheHost) {
  for (const auto& [bytes, block, changed] :
       {std::tuple<uint64_t, uint64_t, uint64_t>{(uint64_t{96} << 20) + 40, 64, 50},
        {(uint64_t{600} << 20) + 4000, 4096, 40},
        {uint64_t{32} << 20, 512, 1}}) {
    if (HasFailure() || nvrtc_ == nullptr) return;
    const uint64_t blocks = (bytes + block - 1) / block;
    const fc::Program program =
        fc::Simplify(fc::testing::DeltaProgram(bytes, block, blocks / changed + 1));
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
    const absl::StatusOr<fc::GpuPlan> plan = fc::MakeGpuPlan(program, arch_);
    ASSERT_TRUE(plan.ok()) << plan.status();
    RealGpu gpu(*driver_, api_);
    gpu.Load(*nvrtc_, *plan);
    const std::vector<Bytes> got = fc::testing::RunGpuPlan(*plan, buffers, gpu);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(got[i] == expected[i])
          << "@" << program.buffers[i].name << " of blocks of " << block;
    }
  }
}

// What GPUs round by instructions.
TEST_F(GpuKernelTest, NumbersAreRoundedAsTheReferenceSays) {
  for (const fc::Program& program : fc::testing::ConversionPrograms()) Compare(program, 0);
  for (const fc::Program& program : fc::testing::QuotientPrograms()) Compare(program, 0);
}

}  // namespace
}  // namespace ferry::testing
