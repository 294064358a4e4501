// SPDX-License-Identifier: Apache-2.0
// How long the steps of a large copy are. Copy engines lose some 8 us between two calls, so long
// ones are faster; but what is small waits for the steps under way, whatever its stream's priority,
// so a step should take well under a millisecond: 256 MiB between two GPUs on NVLink, 32 MiB to
// host memory over PCIe. Follows what steps take. Pure.
#pragma once

#include <algorithm>
#include <cstddef>

#include "absl/time/time.h"

namespace ferry {

class StepSize {
 public:
  // Measured on two H200 over NVLink (2026-11-22), 1 GiB, GB/s of 395 in one call, two steps under
  // way, pull / push: of 32 MiB 370 / 382, of 64 MiB 382 / 389, of 128 MiB 389 / 393, of 256 MiB
  // 393 / 394. 64 KiB behind two of 256 MiB: 1.3 ms.
  static constexpr size_t kMost = size_t{256} << 20;
  static constexpr size_t kLeast = size_t{8} << 20;
  static constexpr absl::Duration kLong = absl::Microseconds(800);

  size_t bytes() const { return bytes_; }
  // A step begins while none is under way.
  void OnFirst(absl::Time now) { Begin(now); }
  // Those under way share the road, so one says little of how long a step takes; two on end do.
  void OnOver(size_t bytes, absl::Time now) {
    if (bytes < bytes_) return Begin(now);  // the last of its copies, or many small pieces
    done_ += bytes;
    if (done_ < 2 * bytes_) return;
    const absl::Duration step =
        (now - since_) * (static_cast<double>(bytes_) / static_cast<double>(done_));
    if (step > kLong) bytes_ = std::max(bytes_ / 2, kLeast);
    if (step < kLong / 2) bytes_ = std::min(bytes_ * 2, kMost);
    Begin(now);
  }

 private:
  void Begin(absl::Time now) {
    since_ = now;
    done_ = 0;
  }

  size_t bytes_ = size_t{64} << 20;
  absl::Time since_;  // full steps of so many bytes are over since then
  size_t done_ = 0;
};

}  // namespace ferry
