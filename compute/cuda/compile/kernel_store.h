// SPDX-License-Identifier: Apache-2.0
// Finds the machine code of kernels: in this process's memory, in a cache on disk, in what a
// package brings, or else by the compiler. Kernels whose sources differ only in the name are one
// kernel. With tiers, a kernel may be compiled in the background, while another one does its work.
//
// Example: a plan has the kernels "scaled_e49e09bf" and "sum_0c1d...". The first call compiles each
// of them (some 30 ms). Later calls find both, as do other processes that use the same directory.
//
// Calls may wait for the compiler. Home: the thread that makes the first call.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "compute/cuda/compile/background_compiler.h"
#include "compute/cuda/compile/compile_child.h"
#include "compute/cuda/compile/cubin_cache.h"
#include "compute/cuda/compile/stored_kernel.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/gpu_plan.h"

namespace ferry::compute {

// The name of the one kernel in a store's machine code; it has nothing of a label.
inline constexpr char kStoredEntry[] = "ferry_kernel";

// The kernel's source with kStoredEntry for its name.
std::string StoredSource(const GpuKernel& kernel);
// Its name in what a package brings.
std::string PackagedKey(const GpuKernel& kernel, const GpuArch& arch, Tier tier = Tier::kFull);

class KernelStore {
 public:
  struct Options {
    CompileChild::Options compiler;
    // Directories that a package brings, which are searched last (packaged_kernels.h).
    std::vector<std::string> packaged;
    std::string cache;  // a directory of the process's own; empty: none
    uint64_t cache_bytes = CubinCache::kMostBytes;
    bool tiers = false;  // whether programs may run by first tiers until their kernels are there
    // With tiers: told once of each kernel that stays as its first tier is, and why. Called on a
    // thread of the store's.
    std::function<void(const std::string& text)> problem = nullptr;
    // For tests. With tiers: called on that thread before each kernel is compiled in the
    // background.
    std::function<void()> before_full = nullptr;
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
  // Errors: as CompileChild::Compile. What is known, or a package brings, needs no compiler.
  absl::StatusOr<Got> Get(const GpuKernel& kernel, const GpuArch& arch, Tier tier = Tier::kFull);
  // The kernel without compiling it: it has code if that was found. It lives as long as the store.
  const StoredKernel* Find(const GpuKernel& kernel, const GpuArch& arch);
  // Has it compiled in the background, unless it has code, or was asked for so before. Only with
  // tiers.
  absl::Status Later(const GpuKernel& kernel, const GpuArch& arch);
  bool tiers() const { return background_ != nullptr; }

  // Problems that are no errors, each once.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Since the store was made. Any thread.
  struct Counts {
    uint64_t compiled = 0;        // in full, also in the background
    uint64_t compiled_first = 0;  // of the first tier
    uint64_t failed = 0;          // in full, also in the background
    uint64_t failed_first = 0;
    uint64_t found = 0;     // in the cache, of either tier
    uint64_t packaged = 0;  // in what a package brings
    uint64_t waiting = 0;   // for being compiled in the background, now
  };
  Counts counts() const;

 private:
  struct Entry {
    StoredKernel kernel;
    std::string key;     // in the cache; empty: not known, since there was no NVRTC
    bool later = false;  // it was given to the background
  };

  // The kernel's entry. If that is new its code is looked for on disk; `from` says where it is.
  Entry& EntryOf(const GpuKernel& kernel, const GpuArch& arch, Tier tier, From& from);
  // Sets the entry's key. Errors: as CompileChild::Version.
  absl::Status NameEntry(const GpuKernel& kernel, const GpuArch& arch, Tier tier, Entry& entry);
  void Warn(const absl::Status& status);

  CompileChild child_;
  std::vector<CubinCache> packaged_;
  std::optional<CubinCache> cache_;
  // By PackagedKey, which needs no compiler to be asked for its version.
  absl::flat_hash_map<std::string, std::unique_ptr<Entry>> known_;
  std::vector<std::string> warnings_;
  std::atomic<uint64_t> compiled_[2] = {}, failed_[2] = {};  // by Tier
  std::atomic<uint64_t> found_{0}, found_packaged_{0};
  [[no_unique_address]] HomeChecker home_;
  std::unique_ptr<BackgroundCompiler> background_;  // the last: it publishes in `known_`
};

}  // namespace ferry::compute
