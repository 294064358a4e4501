// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/kernel_fixture.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compute/cuda/compile/kernel_store.h"
#include "compute/cuda/kernel_compiler.h"
#include "compute/program/text.h"
#include "tests/compute/program_runs.h"
#include "tests/compute/reference/evaluate.h"

namespace ferry::testing {
namespace {

namespace fc = ferry::compute;
using fc::testing::Bytes;

class RealGpu : public fc::testing::GpuMachine {
 public:
  RealGpu(const GpuDriver* driver, const ModuleApi& api) : driver_(driver), api_(api) {}
  ~RealGpu() override { FreeAll(); }

  void Use(LoadedKernels& kernels, const fc::GpuPlan& plan, fc::Tier tier) {
    for (const fc::GpuKernel& kernel : plan.kernels) {
      functions_[kernel.name] = kernels.Get(kernel, tier);
      ASSERT_NE(functions_[kernel.name], nullptr);
    }
  }

  // In whole words: a kernel that writes half of a byte writes what it has read to the others of
  // the word (memory.cuh, PutHalf).
  uint64_t Allocate(const Bytes& bytes) override {
    Bytes whole = bytes;
    whole.resize(std::max<size_t>((bytes.size() + 3) / 4 * 4, 4), kBehind);
    CUdeviceptr memory = 0;
    EXPECT_CU(driver_->cuMemAlloc(&memory, whole.size()));
    memory_.emplace_back(memory, bytes.size());
    Write(memory, whole);
    return memory;
  }
  Bytes Read(uint64_t address, uint64_t bytes) override {
    Bytes made(bytes);
    EXPECT_EQ(driver_->cuCtxSynchronize(), CUDA_SUCCESS);
    if (bytes > 0) {
      EXPECT_EQ(driver_->cuMemcpyDtoHAsync(made.data(), address, bytes, nullptr), CUDA_SUCCESS);
    }
    EXPECT_EQ(driver_->cuCtxSynchronize(), CUDA_SUCCESS);
    return made;
  }
  void Write(uint64_t address, const Bytes& bytes) override {
    if (bytes.empty()) return;
    EXPECT_EQ(driver_->cuMemcpyHtoDAsync(address, bytes.data(), bytes.size(), nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_->cuCtxSynchronize(), CUDA_SUCCESS);
  }
  void Copy(uint64_t to, uint64_t from, uint64_t bytes) override { Write(to, Read(from, bytes)); }
  void FreeAll() override {
    for (const auto& [memory, bytes] : memory_) {
      const uint64_t behind = std::max<uint64_t>((bytes + 3) / 4 * 4, 4) - bytes;
      EXPECT_EQ(Read(memory + bytes, behind), Bytes(behind, kBehind)) << "behind " << bytes;
      driver_->cuMemFree(memory);
    }
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
  static constexpr std::byte kBehind{0xA5};  // what the rest of a last word has

  const GpuDriver* const driver_;
  const ModuleApi& api_;
  std::map<std::string, CUfunction> functions_;
  std::vector<std::pair<CUdeviceptr, uint64_t>> memory_;  // addresses, and sizes in bytes
};

}  // namespace

LoadedKernels::LoadedKernels(const GpuDriver* driver, const ModuleApi& api, const fc::GpuArch& arch,
                             const fc::NvrtcApi* nvrtc)
    : driver_(driver), api_(api), arch_(arch), nvrtc_(nvrtc) {
  const char* const path = getenv("FERRY_GPU_KERNELS");
  if (path == nullptr) return;
  absl::StatusOr<fc::CubinCache> opened =
      fc::CubinCache::Open(path, fc::CubinCache::Access::kReadOnly);
  EXPECT_TRUE(opened.ok()) << opened.status();
  if (opened.ok()) directory_ = *std::move(opened);
  std::ifstream(std::filesystem::path(path) / kVersionFile) >> version_;
}

LoadedKernels::~LoadedKernels() {
  for (CUmodule module : modules_) api_.unload(module);
}

std::optional<fc::CompiledKernel> LoadedKernels::Find(const std::string& source, fc::Tier tier) {
  if (directory_) {
    const std::string key = fc::KernelKey(source, fc::CompileOptions(arch_, tier), version_);
    if (std::optional<fc::CompiledKernel> found = directory_->Find(key)) return found;
  }
  ++compiled_;
  if (nvrtc_ == nullptr) {
    ADD_FAILURE() << "there is no NVRTC, and FERRY_GPU_KERNELS has not the kernel\n" << source;
    return std::nullopt;
  }
  absl::StatusOr<fc::CompiledKernel> made = fc::CompileKernel(
      *nvrtc_, absl::StrReplaceAll(source, {{fc::kEntryPlace, fc::kStoredEntry}}), arch_, tier);
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return std::nullopt;
  return *std::move(made);
}

CUfunction LoadedKernels::Get(const fc::GpuKernel& kernel, fc::Tier tier) {
  const auto known = functions_.find({kernel.source, tier});
  if (known != functions_.end()) return known->second;
  const std::optional<fc::CompiledKernel> found = Find(kernel.source, tier);
  if (!found) return nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_CU(api_.load(&module, found->cubin.data()));
  if (module == nullptr) return nullptr;
  modules_.push_back(module);
  EXPECT_CU(api_.find(&function, module, fc::kStoredEntry));
  functions_[{kernel.source, tier}] = function;
  return function;
}

void GpuKernelTest::SetUp() {
  GpuTest::SetUp();
  if (driver_ == nullptr) return;
  if (fake()) GTEST_SKIP() << "NEEDS A REAL GPU: the fake runs no kernels";
  const char* library = getenv("FERRY_NVRTC_LIBRARY");
  const auto nvrtc = fc::LoadNvrtc(library == nullptr ? "" : library);
  if (!nvrtc.ok() && getenv("FERRY_GPU_KERNELS") == nullptr) {
    GTEST_SKIP() << "NEEDS NVRTC, or FERRY_GPU_KERNELS: " << nvrtc.status();
  }
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
  kernels_ = std::make_unique<LoadedKernels>(driver_, api_, arch_, nvrtc.ok() ? *nvrtc : nullptr);
}

void GpuKernelTest::TearDown() {
  if (kernels_ != nullptr) {
    printf("compiled %llu kernels\n", static_cast<unsigned long long>(kernels_->compiled()));
  }
  kernels_.reset();
  GpuTest::TearDown();
}

std::vector<Bytes> GpuKernelTest::Run(const SuiteProgram& program,
                                      const std::vector<Bytes>& buffers, fc::Tier tier) {
  const absl::StatusOr<fc::GpuPlan> plan = fc::MakeGpuPlan(program.program, arch_, program.options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  RealGpu gpu(driver_, api_);
  gpu.Use(*kernels_, *plan, tier);
  if (HasFailure()) return {};
  return fc::testing::RunGpuPlan(*plan, buffers, gpu);
}

void GpuKernelTest::Compare(const SuiteProgram& made, fc::Tier tier) {
  const auto random = [&] {
    std::vector<Bytes> buffers = fc::testing::RandomBuffers(made.program, made.seed);
    for (Bytes& buffer : buffers) {
      for (std::byte& byte : buffer) byte &= made.small ? std::byte{0x3F} : std::byte{0xFF};
    }
    return buffers;
  };
  std::vector<fc::testing::Memory> reference;
  for (Bytes& bytes : random()) reference.emplace_back(std::move(bytes));
  fc::testing::Evaluate(made.program, reference);
  const std::vector<Bytes> got = Run(made, random(), tier);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(reference[i].DifferenceOf(got[i]), "")
        << "@" << made.program.buffers[i].name << " of seed " << made.seed << "\n"
        << fc::Print(made.program)
        << fc::ToText(*fc::MakeGpuPlan(made.program, arch_, made.options), true);
  }
}

void GpuKernelTest::CompareSome(Suite suite, uint64_t first, uint64_t count, uint64_t step,
                                fc::Tier tier) {
  if (!ready()) return;
  uint64_t number = 0;
  ForEachProgram(suite, first, count, [&](const SuiteProgram& made) {
    if (number++ % step != 0) return true;
    SuiteProgram program = made;
    if (tier == fc::Tier::kFirst) program.options.code = fc::kFirstTierCode[0];
    Compare(program, tier);
    return !HasFailure();
  });
}

}  // namespace ferry::testing
