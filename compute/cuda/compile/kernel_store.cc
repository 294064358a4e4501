// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/compile/kernel_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_replace.h"
#include "base/executor.h"
#include "base/status.h"
#include "compute/cuda/compile/packaged_kernels.h"
#include "compute/cuda/kernel_code.h"

namespace ferry::compute {
std::string StoredSource(const GpuKernel& kernel) {
  return absl::StrReplaceAll(kernel.source, {{kEntryPlace, kStoredEntry}});
}

std::string PackagedKey(const GpuKernel& kernel, const GpuArch& arch, Tier tier) {
  return KernelKey(kernel.source, CompileOptions(arch, tier), kPackagedVersion);
}

KernelStore::KernelStore(Options options) : child_(options.compiler) {
  for (const std::string& path : options.packaged) {
    absl::StatusOr<CubinCache> opened = CubinCache::Open(path, CubinCache::Access::kReadOnly);
    if (opened.ok()) {
      packaged_.push_back(*std::move(opened));
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

absl::Status KernelStore::NameEntry(const GpuKernel& kernel, const GpuArch& arch, Tier tier,
                                    Entry& entry) {
  if (!entry.key.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string version, child_.Version());
  entry.key = KernelKey(kernel.source, CompileOptions(arch, tier), version);
  return absl::OkStatus();
}

KernelStore::Entry& KernelStore::EntryOf(const GpuKernel& kernel, const GpuArch& arch, Tier tier,
                                         From& from) {
  const std::string name = PackagedKey(kernel, arch, tier);
  std::unique_ptr<Entry>& entry = known_[name];
  from = From::kMemory;
  if (entry != nullptr) return *entry;
  entry = std::make_unique<Entry>();
  std::optional<CompiledKernel> found;
  // Without NVRTC the cache's names are not known; what is packed may be there all the same.
  if (cache_ && NameEntry(kernel, arch, tier, *entry).ok()) found = cache_->Find(entry->key);
  if (found) found_.fetch_add(1, std::memory_order_relaxed);
  for (CubinCache& package : packaged_) {
    if (found) break;
    found = package.Find(name);
    if (found) found_packaged_.fetch_add(1, std::memory_order_relaxed);
  }
  if (found) {
    entry->kernel.Publish(*std::move(found));
    from = From::kDisk;
  }
  return *entry;
}

absl::StatusOr<KernelStore::Got> KernelStore::Get(const GpuKernel& kernel, const GpuArch& arch,
                                                  Tier tier) {
  home_.Check();
  const absl::Time began = MonotonicNow();
  Got got;
  Entry& entry = EntryOf(kernel, arch, tier, got.from);
  if (entry.kernel.code() == nullptr) {
    RETURN_IF_ERROR(NameEntry(kernel, arch, tier, entry));
    absl::StatusOr<CompiledKernel> made = child_.Compile(StoredSource(kernel), arch, tier);
    auto& counted = made.ok() ? compiled_ : failed_;
    counted[static_cast<size_t>(tier)].fetch_add(1, std::memory_order_relaxed);
    RETURN_IF_ERROR(made.status());
    if (cache_) Warn(cache_->Add(entry.key, *made));
    entry.kernel.Publish(*std::move(made));
    got.from = From::kCompiler;
  }
  got.kernel = entry.kernel.code();
  got.took = MonotonicNow() - began;
  return got;
}

const StoredKernel* KernelStore::Find(const GpuKernel& kernel, const GpuArch& arch) {
  home_.Check();
  From from;
  return &EntryOf(kernel, arch, Tier::kFull, from).kernel;
}

absl::Status KernelStore::Later(const GpuKernel& kernel, const GpuArch& arch) {
  home_.Check();
  From from;
  Entry& entry = EntryOf(kernel, arch, Tier::kFull, from);
  RETURN_IF_ERROR(NameEntry(kernel, arch, Tier::kFull, entry));
  if (entry.kernel.code() != nullptr || std::exchange(entry.later, true)) return absl::OkStatus();
  background_->Add(entry.kernel, entry.key, StoredSource(kernel), arch);
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
  counts.packaged = found_packaged_.load(std::memory_order_relaxed);
  if (background_ == nullptr) return counts;
  counts.compiled += background_->compiled();
  counts.failed += background_->failed();
  counts.waiting = background_->waiting();
  return counts;
}

void KernelStore::Warn(const absl::Status& status) {
  if (status.ok()) return;
  std::string text(status.message());
  if (std::find(warnings_.begin(), warnings_.end(), text) == warnings_.end()) {
    warnings_.push_back(std::move(text));
  }
}

}  // namespace ferry::compute
