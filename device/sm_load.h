// SPDX-License-Identifier: Apache-2.0
// Whether the SMs of a GPU are a client's now, as far as our own kernels tell: one that came late
// had to wait for a time slice of another process's. Nothing is launched to find out, so what was
// found holds for a while, longer each time it is found again, and then a kernel may try. Pure;
// time is an argument.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace ferry {

class SmLoad {
 public:
  // What a kernel waits for SMs that are busy: a time slice of the other process's
  // (docs/measured-facts.md, fact 1: 8 B by NCCL take 37 us and, beside matrix products, 1,877).
  static constexpr absl::Duration kSlice = absl::Milliseconds(2);

  bool busy(absl::Time now) const { return now < busy_until_; }
  absl::Time busy_until() const { return busy_until_; }
  // A kernel of ours is over: much later than it would have been on idle SMs, or not.
  void OnKernelOver(bool late, absl::Time now) {
    if (!late) {
      busy_for_ = kFirst;
      return;
    }
    busy_until_ = now + busy_for_;
    busy_for_ = std::min(2 * busy_for_, kLongest);
  }

 private:
  static constexpr absl::Duration kFirst = absl::Milliseconds(10);
  static constexpr absl::Duration kLongest = absl::Seconds(1);
  absl::Time busy_until_ = absl::InfinitePast();
  absl::Duration busy_for_ = kFirst;
};

}  // namespace ferry
