// SPDX-License-Identifier: Apache-2.0
// Whether another process keeps the SMs of a GPU busy, as far as our own kernels tell: a kernel
// that comes late had to wait for a time slice of the other process. Nothing is launched to find
// out. So a finding holds for a while, and for longer each time it is found again; then a kernel
// may try. Refuses nothing, owns nothing. Pure; time is an argument. Home: its owner's, which is a
// copier's MoverChoice (lane) or a CommRecord (control).
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace ferry {

class SmLoad {
 public:
  // How long a kernel waits for busy SMs: a time slice of the other process
  // (docs/measured-facts.md, fact 1: 8 B by NCCL take 37 us, and 1,877 beside matrix products).
  static constexpr absl::Duration kSlice = absl::Milliseconds(2);

  bool busy(absl::Time now) const { return now < busy_until_; }
  absl::Time busy_until() const { return busy_until_; }
  // A kernel of ours is over. `late`: it took much longer than it would have on idle SMs.
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
