// SPDX-License-Identifier: Apache-2.0
// Copies between mapped host memory. A small copy is a memcpy. If the pieces of a step have
// `kStreamingBytes` in total, the stores go past the cache (non-temporal), whatever the size of
// each piece. From `kSharedBytes` on a helper thread is woken to take parts.
//
// Home: the lane of the copier.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "device/copier.h"

namespace ferry {

// About one core's L2 cache, measured. Below it memcpy wins if the bytes are in a cache; above it
// streaming wins in any case.
inline constexpr size_t kStreamingBytes = size_t{2} << 20;
// From this size on two threads win although the helper must be woken.
inline constexpr size_t kSharedBytes = size_t{4} << 20;

// The thread that all host lanes of a daemon share for large copies. It takes parts of the steps
// that the lanes' copiers have queued, copier by copier. Outlives the copiers. Home: any thread.
class CopyHelper {
 public:
  CopyHelper();
  ~CopyHelper();
  CopyHelper(const CopyHelper&) = delete;
  CopyHelper& operator=(const CopyHelper&) = delete;

 private:
  friend class HostCopier;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The copier of a host lane. Start() copies a small step. It queues a large one: then each call of
// TakeOver() copies a part, while the helper takes others. So the lane is back at its tasks and
// words after each part, and neither thread waits for the other between two steps.
class HostCopier : public Copier {
 public:
  explicit HostCopier(CopyHelper& helper);
  // No step may be under way.
  ~HostCopier() override;
  const Limits& limits() const override;
  void Start(absl::Span<const CopyPiece> pieces) override;
  std::optional<absl::Status> TakeOver() override;

 private:
  friend class CopyHelper;
  struct Queue;
  CopyHelper& helper_;
  const std::unique_ptr<Queue> queue_;
  [[no_unique_address]] HomeChecker home_;
};

// Copies on the calling thread alone; streams or not by the total size of `pieces`. HostCopier's
// way without its helper, which tests hold against memcpy.
void CopyAlone(absl::Span<const CopyPiece> pieces);

}  // namespace ferry
