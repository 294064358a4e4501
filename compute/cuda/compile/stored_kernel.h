// SPDX-License-Identifier: Apache-2.0
// A kernel that a KernelStore knows: its machine code once that is there, which may be later than
// the kernel is first asked for. Owned by the store. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "compute/cuda/kernel_compiler.h"

namespace ferry::compute {

class StoredKernel {
 public:
  StoredKernel() = default;
  StoredKernel(const StoredKernel&) = delete;
  StoredKernel& operator=(const StoredKernel&) = delete;
  ~StoredKernel() { const std::unique_ptr<const CompiledKernel> owner(code_.load()); }

  // Null until it is there; then the same as long as the kernel lives. Of one that has failed null
  // for ever, unless somebody compiles it all the same.
  const CompiledKernel* code() const { return code_.load(std::memory_order_acquire); }
  // Gives it its code, unless it has some already.
  void Publish(CompiledKernel code) {
    auto made = std::make_unique<const CompiledKernel>(std::move(code));
    const CompiledKernel* none = nullptr;
    if (code_.compare_exchange_strong(none, made.get(), std::memory_order_acq_rel)) made.release();
  }
  // It will get no code: the compiler has refused it.
  void Fail() { failed_.store(true, std::memory_order_release); }
  bool failed() const { return failed_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> failed_{false};
  std::atomic<const CompiledKernel*> code_{nullptr};
};

}  // namespace ferry::compute
