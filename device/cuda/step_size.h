// SPDX-License-Identifier: Apache-2.0
// Chooses the size of the steps of a large copy, by what steps have taken. A copy engine loses some
// 8 us between two calls, so long steps are faster. But a small copy waits for the steps under way,
// whatever its stream's priority, so a step should take well under a millisecond: 256 MiB between
// two GPUs on NVLink, 32 MiB to host memory over PCIe. Pure.
#pragma once

#include <algorithm>
#include <cstddef>

#include "absl/time/time.h"

namespace ferry {

class StepSize {
 public:
  // Measured on two H200 over NVLink (2026-11-22), two steps under way, 1 GiB, in GB/s (395 in one
  // call), pull / push. Steps of 32 MiB: 370 / 382; of 64 MiB: 382 / 389; of 128 MiB: 389 / 393; of
  // 256 MiB: 393 / 394. 64 KiB behind two steps of 256 MiB take 1.3 ms.
  static constexpr size_t kMost = size_t{256} << 20;
  static constexpr size_t kLeast = size_t{8} << 20;
  static constexpr absl::Duration kLong = absl::Microseconds(800);

  size_t bytes() const { return bytes_; }
  // A step begins while none is under way.
  void OnFirst(absl::Time now) { Begin(now); }
  // A step is over. Steps under way share the bandwidth, so one says little of its own time; two
  // full steps in a row do.
  void OnOver(size_t bytes, absl::Time now) {
    if (bytes < bytes_) return Begin(now);  // the last step of a copy, or one of many small pieces
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
  absl::Time since_;  // when the full steps of `done_` bytes began
  size_t done_ = 0;
};

}  // namespace ferry
