// SPDX-License-Identifier: Apache-2.0
// Copies between mapped host memory. Small ones are memcpy; from `kStreamingBytes` in one call's
// total the stores go past the cache (non-temporal), whatever the size of each piece; from
// `kSharedBytes` a helper thread takes a part when a core is idle.
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

// The thread that all host lanes of a daemon share for large copies. Any thread may call Copy; one
// copy at a time gets the helper, others go alone.
class CopyHelper {
 public:
  CopyHelper();
  ~CopyHelper();
  CopyHelper(const CopyHelper&) = delete;
  CopyHelper& operator=(const CopyHelper&) = delete;

  // Returns when all bytes are there.
  void Copy(absl::Span<const CopyPiece> pieces);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The copier of host lanes: a step is over when Start returns.
class HostCopier : public Copier {
 public:
  explicit HostCopier(CopyHelper& helper) : helper_(helper) {}
  const Limits& limits() const override;
  void Start(absl::Span<const CopyPiece> pieces) override;
  std::optional<absl::Status> TakeOver() override;

 private:
  CopyHelper& helper_;
  bool over_ = false;
};

// One thread, streaming or not by the total of `pieces`.
void CopyAlone(absl::Span<const CopyPiece> pieces);

}  // namespace ferry
