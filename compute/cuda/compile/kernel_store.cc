// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/kernel_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/executor.h"
#include "base/status.h"
#include "compute/cuda/kernel_code.h"

namespace ferry::compute {

KernelStore::KernelStore(Options options) : child_(std::move(options.compiler)) {
  for (const std::string& path : options.read_only) {
    absl::StatusOr<CubinCache> opened = CubinCache::Open(path, CubinCache::Access::kReadOnly);
    if (opened.ok()) {
      read_only_.push_back(*std::move(opened));
    } else {
      Warn(opened.status());
    }
  }
  if (options.cache.empty()) return;
  absl::StatusOr<CubinCache> opened =
      CubinCache::Open(options.cache, CubinCache::Access::kOwn, options.cache_bytes);
  if (opened.ok()) {
    cache_ = *std::move(opened);
  } else {
    Warn(opened.status());
  }
}

absl::StatusOr<KernelStore::Got> KernelStore::Get(const GpuKernel& kernel, const GpuArch& arch) {
  home_.Check();
  const absl::Time began = MonotonicNow();
  ASSIGN_OR_RETURN(const std::string version, child_.Version());
  const std::string key = KernelKey(kernel.source, CompileOptions(arch), version);
  const auto got = [&](From from) { return Got{known_[key].get(), from, MonotonicNow() - began}; };
  if (known_.contains(key)) return got(From::kMemory);
  if (std::optional<CompiledKernel> found = FindOnDisk(key)) {
    known_[key] = std::make_unique<const CompiledKernel>(*std::move(found));
    return got(From::kDisk);
  }
  const std::string source = absl::StrReplaceAll(kernel.source, {{kEntryPlace, kStoredEntry}});
  ASSIGN_OR_RETURN(CompiledKernel made, child_.Compile(source, arch));
  if (cache_) Warn(cache_->Add(key, made));
  known_[key] = std::make_unique<const CompiledKernel>(std::move(made));
  return got(From::kCompiler);
}

std::optional<CompiledKernel> KernelStore::FindOnDisk(const std::string& key) {
  for (CubinCache& cache : read_only_) {
    if (std::optional<CompiledKernel> found = cache.Find(key)) return found;
  }
  return cache_ ? cache_->Find(key) : std::nullopt;
}

void KernelStore::Warn(const absl::Status& status) {
  if (status.ok()) return;
  std::string text(status.message());
  if (std::find(warnings_.begin(), warnings_.end(), text) == warnings_.end()) {
    warnings_.push_back(std::move(text));
  }
}

}  // namespace ferry::compute
