// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/background_compiler.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace ferry::compute {
namespace {

constexpr int kNiceness = 10;
constexpr size_t kDigits = 16;  // of a key, in what people read

}  // namespace

BackgroundCompiler::BackgroundCompiler(Options options)
    : options_(std::move(options)), stop_(eventfd(0, EFD_CLOEXEC)) {
  executor_.Post([this] {
    // Also of the child, which this thread starts.
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNiceness);
    CompileChild::Options compiler = options_.compiler;
    compiler.stop = stop_.get();
    child_.emplace(std::move(compiler));
    if (options_.cache.empty()) return;
    // What is wrong with the directory is the store's to say.
    absl::StatusOr<CubinCache> opened =
        CubinCache::Open(options_.cache, CubinCache::Access::kOwn, options_.cache_bytes);
    if (opened.ok()) cache_ = *std::move(opened);
  });
}

BackgroundCompiler::~BackgroundCompiler() {
  stopping_.store(true, std::memory_order_relaxed);
  if (stop_.valid()) eventfd_write(stop_.get(), 1);
  executor_.Stop();
}

void BackgroundCompiler::Add(StoredKernel& kernel, std::string key, std::string source,
                             const GpuArch& arch) {
  waiting_.fetch_add(1, std::memory_order_relaxed);
  executor_.Post([this, &kernel, key = std::move(key), source = std::move(source), arch] {
    if (options_.before) options_.before();
    if (!stopping_.load(std::memory_order_relaxed)) Compile(kernel, key, source, arch);
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  });
}

void BackgroundCompiler::Compile(StoredKernel& kernel, const std::string& key,
                                 const std::string& source, const GpuArch& arch) {
  if (kernel.code() != nullptr) return;  // somebody could not wait
  absl::StatusOr<CompiledKernel> made = child_->Compile(source, arch);
  if (stopping_.load(std::memory_order_relaxed)) return;
  if (!made.ok()) {
    kernel.Fail();
    failed_.fetch_add(1, std::memory_order_relaxed);
    if (options_.problem) {
      options_.problem(absl::StrCat(
          "kernel ", key.substr(0, kDigits), " of ", arch.name,
          " stays as it was compiled first, and runs longer: ", made.status().message()));
    }
    return;
  }
  if (cache_) cache_->Add(key, *made).IgnoreError();
  kernel.Publish(*std::move(made));
  compiled_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace ferry::compute
