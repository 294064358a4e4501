// SPDX-License-Identifier: Apache-2.0
// How long runs of programs have taken, on host devices and on GPUs, as it was measured. A value.
#pragma once

#include "absl/time/time.h"

namespace ferry {

struct RunTime {
  absl::Duration host, gpu;

  RunTime& operator+=(const RunTime& other) {
    host += other.host;
    gpu += other.gpu;
    return *this;
  }
};

}  // namespace ferry
