// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/kernel_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/executor.h"
#include "base/status.h"
#include "compute/cuda/kernel_code.h"

namespace ferry::compute {
namespace {

std::string StoredSource(const GpuKernel& kernel) {
  return absl::StrReplaceAll(kernel.source, {{kEntryPlace, kStoredEntry}});
}

}  // namespace

KernelStore::KernelStore(Options options) : child_(options.compiler) {
  for (const std::string& path : options.read_only) {
    absl::StatusOr<CubinCache> opened = CubinCache::Open(path, CubinCache::Access::kReadOnly);
    if (opened.ok()) {
      read_only_.push_back(*std::move(opened));
    } else {
      Warn(opened.status());
    }
  }
  if (!options.cache.empty()) {
    absl::StatusOr<CubinCache> opened =
        CubinCache::Open(options.cache, CubinCache::Access::kOwn, options.cache_bytes);
    if (opened.ok()) {
      cache_ = *std::move(opened);
    } else {
      Warn(opened.status());
    }
  }
  if (!options.tiers) return;
  background_ = std::make_unique<BackgroundCompiler>(BackgroundCompiler::Options{
      std::move(options.compiler), cache_ ? std::move(options.cache) : "", options.cache_bytes,
      std::move(options.problem), std::move(options.before_full)});
}

absl::StatusOr<std::string> KernelStore::KeyOf(const GpuKernel& kernel, const GpuArch& arch,
                                               Tier tier) {
  ASSIGN_OR_RETURN(const std::string version, child_.Version());
  return KernelKey(kernel.source, CompileOptions(arch, tier), version);
}

KernelStore::Entry& KernelStore::EntryOf(const std::string& key, From& from) {
  std::unique_ptr<Entry>& entry = known_[key];
  from = From::kMemory;
  if (entry != nullptr) return *entry;
  entry = std::make_unique<Entry>();
  if (std::optional<CompiledKernel> found = FindOnDisk(key)) {
    entry->kernel.Publish(*std::move(found));
    found_.fetch_add(1, std::memory_order_relaxed);
    from = From::kDisk;
  }
  return *entry;
}

absl::StatusOr<KernelStore::Got> KernelStore::Get(const GpuKernel& kernel, const GpuArch& arch,
                                                  Tier tier) {
  home_.Check();
  const absl::Time began = MonotonicNow();
  ASSIGN_OR_RETURN(const std::string key, KeyOf(kernel, arch, tier));
  Got got;
  StoredKernel& stored = EntryOf(key, got.from).kernel;
  if (stored.code() == nullptr) {
    absl::StatusOr<CompiledKernel> made = child_.Compile(StoredSource(kernel), arch, tier);
    auto& counted = made.ok() ? compiled_ : failed_;
    counted[static_cast<size_t>(tier)].fetch_add(1, std::memory_order_relaxed);
    RETURN_IF_ERROR(made.status());
    if (cache_) Warn(cache_->Add(key, *made));
    stored.Publish(*std::move(made));
    got.from = From::kCompiler;
  }
  got.kernel = stored.code();
  got.took = MonotonicNow() - began;
  return got;
}

absl::StatusOr<const StoredKernel*> KernelStore::Find(const GpuKernel& kernel,
                                                      const GpuArch& arch) {
  home_.Check();
  ASSIGN_OR_RETURN(const std::string key, KeyOf(kernel, arch, Tier::kFull));
  From from;
  return &EntryOf(key, from).kernel;
}

absl::Status KernelStore::Later(const GpuKernel& kernel, const GpuArch& arch) {
  home_.Check();
  ASSIGN_OR_RETURN(const std::string key, KeyOf(kernel, arch, Tier::kFull));
  From from;
  Entry& entry = EntryOf(key, from);
  if (entry.kernel.code() != nullptr || std::exchange(entry.later, true)) return absl::OkStatus();
  background_->Add(entry.kernel, key, StoredSource(kernel), arch);
  return absl::OkStatus();
}

KernelStore::Counts KernelStore::counts() const {
  const auto of = [](const std::atomic<uint64_t>(&all)[2], Tier tier) {
    return all[static_cast<size_t>(tier)].load(std::memory_order_relaxed);
  };
  Counts counts;
  counts.compiled = of(compiled_, Tier::kFull);
  counts.compiled_first = of(compiled_, Tier::kFirst);
  counts.failed = of(failed_, Tier::kFull);
  counts.failed_first = of(failed_, Tier::kFirst);
  counts.found = found_.load(std::memory_order_relaxed);
  if (background_ == nullptr) return counts;
  counts.compiled += background_->compiled();
  counts.failed += background_->failed();
  counts.waiting = background_->waiting();
  return counts;
}

std::optional<CompiledKernel> KernelStore::FindOnDisk(const std::string& key) {
  if (cache_) {
    if (std::optional<CompiledKernel> found = cache_->Find(key)) return found;
  }
  for (CubinCache& cache : read_only_) {
    if (std::optional<CompiledKernel> found = cache.Find(key)) return found;
  }
  return std::nullopt;
}

void KernelStore::Warn(const absl::Status& status) {
  if (status.ok()) return;
  std::string text(status.message());
  if (std::find(warnings_.begin(), warnings_.end(), text) == warnings_.end()) {
    warnings_.push_back(std::move(text));
  }
}

}  // namespace ferry::compute
