// SPDX-License-Identifier: Apache-2.0
// Finds the machine code of kernels: in this process's memory, in a cache on disk, or else by the
// compiler. Kernels whose sources differ only in the name are one kernel.
//
// Example: a plan has the kernels "scaled_e49e09bf" and "sum_0c1d...". The first call compiles each
// of them (some 30 ms). Later calls find both, as do other processes that use the same directory.
//
// Calls may wait for the compiler. Home: the thread that makes the first call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "compute/cuda/compile/compile_child.h"
#include "compute/cuda/compile/cubin_cache.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/gpu_plan.h"

namespace ferry::compute {

// The name of the one kernel in a store's machine code; it has nothing of a label.
inline constexpr char kStoredEntry[] = "ferry_kernel";

class KernelStore {
 public:
  struct Options {
    CompileChild::Options compiler;
    std::vector<std::string> read_only;  // directories that are searched first
    std::string cache;                   // a directory of the process's own; empty: none
    uint64_t cache_bytes = CubinCache::kMostBytes;
  };
  // Problems with directories go to warnings(): without a directory kernels are compiled more
  // often.
  explicit KernelStore(Options options);

  enum class From : uint8_t { kMemory, kDisk, kCompiler };
  struct Got {
    const CompiledKernel* kernel = nullptr;  // lives as long as the store
    From from = From::kMemory;
    absl::Duration took;
  };
  // Errors: as CompileChild::Compile.
  absl::StatusOr<Got> Get(const GpuKernel& kernel, const GpuArch& arch);

  // Problems that are no errors, each once.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::optional<CompiledKernel> FindOnDisk(const std::string& key);
  void Warn(const absl::Status& status);

  CompileChild child_;
  std::vector<CubinCache> read_only_;
  std::optional<CubinCache> cache_;
  // By KernelKey.
  absl::flat_hash_map<std::string, std::unique_ptr<const CompiledKernel>> known_;
  std::vector<std::string> warnings_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry::compute
