// SPDX-License-Identifier: Apache-2.0
// KernelStore: the machine code of kernels, wherever it comes from: this process's memory, a cache
// on disk, or else the compiler. Two kernels whose sources differ in the name alone are one.
//
// Example: a plan has the kernels "scaled_e49e09bf" and "sum_0c1d...". The first call compiles each
// (some 30 ms); the next one, and that of the next process with the same directory, finds both.
//
// Calls may wait for the compiler. Single-threaded; home: the thread that makes the first call.
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
#include "compute/cuda/compile/compile_child.h"
#include "compute/cuda/compile/cubin_cache.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/gpu_plan.h"

namespace ferry::compute {

// What the one kernel of a store's machine code is called: nothing of a label.
inline constexpr char kStoredEntry[] = "ferry_kernel";

class KernelStore {
 public:
  struct Options {
    CompileChild::Options compiler;
    std::vector<std::string> read_only;  // directories that are looked into first
    std::string cache;                   // a directory of one's own; empty: none
    uint64_t cache_bytes = CubinCache::kMostBytes;
  };
  // What is wrong with a directory is in `warnings`: without it kernels are compiled more often.
  explicit KernelStore(Options options);

  enum class From : uint8_t { kMemory, kDisk, kCompiler };
  struct Got {
    const CompiledKernel* kernel = nullptr;  // there as long as the store
    From from = From::kMemory;
    absl::Duration took;
  };
  // As CompileChild::Compile.
  absl::StatusOr<Got> Get(const GpuKernel& kernel, const GpuArch& arch);

  // What went wrong without being an error, each once.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::optional<CompiledKernel> FindOnDisk(const std::string& key);
  void Warn(const absl::Status& status);

  CompileChild child_;
  std::vector<CubinCache> read_only_;
  std::optional<CubinCache> cache_;
  // By key.
  absl::flat_hash_map<std::string, std::unique_ptr<const CompiledKernel>> known_;
  std::vector<std::string> warnings_;
};

}  // namespace ferry::compute
