// SPDX-License-Identifier: Apache-2.0
// Compiles kernels in full, one after the other, while their first tier runs: on a thread of its
// own, with less of the CPU than others where there is too little, and by a ferry-compile of its
// own, so that nobody who waits for a first tier waits for this. Each kernel is tried once. Owned
// by a KernelStore. Any thread; the destructor drops what waits and ends what is compiled.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/executor.h"
#include "base/fd.h"
#include "compute/cuda/compile/compile_child.h"
#include "compute/cuda/compile/cubin_cache.h"
#include "compute/cuda/compile/stored_kernel.h"
#include "compute/cuda/gpu_arch.h"

namespace ferry::compute {

class BackgroundCompiler {
 public:
  struct Options {
    CompileChild::Options compiler;
    std::string cache;  // where what is compiled is kept; empty: nowhere
    uint64_t cache_bytes = CubinCache::kMostBytes;
    // Told why a kernel stays as its first tier is. Called on this object's thread.
    std::function<void(const std::string& text)> problem;
    // If set: called on this object's thread before each kernel is compiled. It may wait.
    std::function<void()> before;
  };
  explicit BackgroundCompiler(Options options);
  ~BackgroundCompiler();

  // Publishes the code of `kernel`, which outlives this object, once it is compiled. `key` is its
  // KernelKey, `source` has a name in place of kEntryPlace.
  void Add(StoredKernel& kernel, std::string key, std::string source, const GpuArch& arch);

  uint64_t waiting() const { return waiting_.load(std::memory_order_relaxed); }
  uint64_t compiled() const { return compiled_.load(std::memory_order_relaxed); }
  uint64_t failed() const { return failed_.load(std::memory_order_relaxed); }

 private:
  void Compile(StoredKernel& kernel, const std::string& key, const std::string& source,
               const GpuArch& arch);

  const Options options_;
  const UniqueFd stop_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> waiting_{0}, compiled_{0}, failed_{0};
  // On the executor:
  std::optional<CompileChild> child_;
  std::optional<CubinCache> cache_;
  SerialExecutor executor_{"kernels"};
};

}  // namespace ferry::compute
