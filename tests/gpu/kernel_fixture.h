// SPDX-License-Identifier: Apache-2.0
// Shared by tests of generated kernels on a real GPU: kernels come from a directory of those that
// were compiled beforehand (FERRY_GPU_KERNELS, which ferry_make_kernels fills), else from NVRTC.
// One thread.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compute/cuda/compile/cubin_cache.h"
#include "compute/cuda/gpu_plan.h"
#include "compute/cuda/nvrtc.h"
#include "compute/program/program.h"
#include "tests/compute/cuda/runs/gpu_run.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/gpu/suite/suite.h"

namespace ferry::testing {

// What more of the driver these tests need.
struct ModuleApi {
  decltype(&::cuModuleLoadData) load = nullptr;
  decltype(&::cuModuleUnload) unload = nullptr;
  decltype(&::cuModuleGetFunction) find = nullptr;
  decltype(&::cuLaunchKernel) launch = nullptr;
  decltype(&::cuDeviceGetAttribute) attribute = nullptr;
};

// The kernels of one GPU, each loaded once, by their KernelKey.
class LoadedKernels {
 public:
  // `nvrtc` may be null, and then all kernels have to be in the directory. It and `driver` must
  // outlive the object.
  LoadedKernels(const GpuDriver* driver, const ModuleApi& api, const compute::GpuArch& arch,
                const compute::NvrtcApi* nvrtc);
  ~LoadedKernels();
  LoadedKernels(const LoadedKernels&) = delete;
  LoadedKernels& operator=(const LoadedKernels&) = delete;

  // Null, and the test fails, if the kernel does not compile or load.
  CUfunction Get(const compute::GpuKernel& kernel, compute::Tier tier);
  // Whether a directory of kernels was named, and how many kernels were not in it.
  bool has_directory() const { return directory_.has_value(); }
  uint64_t compiled() const { return compiled_; }

 private:
  std::optional<compute::CompiledKernel> Find(const std::string& source, compute::Tier tier);

  const GpuDriver* const driver_;
  const ModuleApi api_;
  const compute::GpuArch arch_;
  const compute::NvrtcApi* const nvrtc_;
  std::optional<compute::CubinCache> directory_;
  std::string version_;  // of the NVRTC that made the directory
  std::vector<CUmodule> modules_;
  std::map<std::pair<std::string, compute::Tier>, CUfunction> functions_;  // by source
  uint64_t compiled_ = 0;
};

class GpuKernelTest : public GpuTest {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Whether the test can go on: there is a real GPU, and kernels for it.
  bool ready() const { return kernels_ != nullptr; }
  // Runs the program's plan on the GPU over `buffers`, and returns what they have afterwards.
  std::vector<compute::testing::Bytes> Run(const SuiteProgram& program,
                                           const std::vector<compute::testing::Bytes>& buffers,
                                           compute::Tier tier = compute::Tier::kFull);
  // Compares what a run over random buffers leaves with what the reference does.
  void Compare(const SuiteProgram& program, compute::Tier tier);
  // Every `step`th of the suite's programs. Kernels of the first tier are compiled here.
  void CompareSome(Suite suite, uint64_t first, uint64_t count, uint64_t step = 1,
                   compute::Tier tier = compute::Tier::kFull);

  ModuleApi api_;
  compute::GpuArch arch_;
  std::unique_ptr<LoadedKernels> kernels_;
};

}  // namespace ferry::testing
