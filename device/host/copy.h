// SPDX-License-Identifier: Apache-2.0
// Copies between mapped host memory. Small ones are memcpy; from `kStreamingBytes` in one step's
// total the stores go past the cache (non-temporal), whatever the size of each piece; from
// `kSharedBytes` a helper thread is woken to take parts.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "device/copier.h"

namespace ferry {

// About one core's L2, measured: below it memcpy wins where the bytes are in a cache, above it
// streaming does whether they are or not.
inline constexpr size_t kStreamingBytes = size_t{2} << 20;
// From here on two threads win even though the helper has to be woken.
inline constexpr size_t kSharedBytes = size_t{4} << 20;

// The thread that all host lanes of a daemon share for large copies: it takes parts of the steps
// that their copiers have queued, in turn. Outlives them.
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

// The copier of host lanes. Small steps are copied by Start; a large one is queued, and TakeOver
// copies a part of it a call, while the helper takes others: the lane is back at its tasks and
// words after a part, and neither thread waits for the other between two steps.
class HostCopier : public Copier {
 public:
  explicit HostCopier(CopyHelper& helper);
  // No step is under way.
  ~HostCopier() override;
  const Limits& limits() const override;
  void Start(absl::Span<const CopyPiece> pieces) override;
  std::optional<absl::Status> TakeOver() override;

 private:
  friend class CopyHelper;
  struct Queue;
  CopyHelper& helper_;
  const std::unique_ptr<Queue> queue_;
};

// One thread, streaming or not by the total of `pieces`.
void CopyAlone(absl::Span<const CopyPiece> pieces);

}  // namespace ferry
