// SPDX-License-Identifier: Apache-2.0
// Compiles generated kernels with the host's compiler and runs them on the CPU. Each thread of a
// GPU is a fiber, which switches to another where it waits for others. The result has the bits of a
// GPU that computes as IEEE says. Single-threaded.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/compute/cuda/runs/gpu_run.h"

namespace ferry::compute::testing {

class HostKernels : public GpuMachine {
 public:
  // OwnCompiler is the compiler of the tests, with the tests' sanitizers; OtherCompiler another
  // one, if there is one.
  struct Compiler {
    std::string command;
    std::string flags;
  };
  static Compiler OwnCompiler();
  static std::optional<Compiler> OtherCompiler();

  // Compiles the kernels of all plans. Null, and a failure of the test, if that does not work.
  static std::unique_ptr<HostKernels> Make(const std::vector<const GpuPlan*>& plans,
                                           const Compiler& compiler = OwnCompiler());
  ~HostKernels() override;

  uint64_t Allocate(const Bytes& bytes) override;
  Bytes Read(uint64_t address, uint64_t bytes) override;
  void Write(uint64_t address, const Bytes& bytes) override;
  void Copy(uint64_t to, uint64_t from, uint64_t bytes) override;
  void FreeAll() override;
  void Launch(const std::string& kernel, uint64_t blocks, uint32_t threads,
              const std::vector<std::pair<uint64_t, uint32_t>>& arguments) override;

 private:
  using Entry = void (*)(const uint64_t* arguments);
  struct Kernel {
    Entry entry = nullptr;
    bool waits = false;  // whether its threads wait for each other
  };
  struct Free {
    void operator()(std::byte* memory) const;
  };
  struct Allocation {
    std::unique_ptr<std::byte, Free> memory;
    const std::byte* guard = nullptr;  // follows the allocated bytes
  };

  std::string folder_;
  void* library_ = nullptr;
  std::map<std::string, Kernel> kernels_;
  std::vector<Allocation> memory_;
};

}  // namespace ferry::compute::testing
