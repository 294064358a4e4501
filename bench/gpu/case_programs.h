// SPDX-License-Identifier: Apache-2.0
// Programs on a GPU, run by a daemon: each as a prepared job that is fired again and again, beside
// the driver's copy of as many bytes on the same GPU in the same run.
#pragma once

#include "absl/status/status.h"
#include "bench/nodes.h"
#include "bench/report.h"
#include "tests/gpu/driver/gpu_driver.h"

namespace ferry::bench {

// By the first GPU of the first node, which is the driver's device 0. `rounds`: alternations of
// each program with the copy.
absl::Status MeasurePrograms(const testing::GpuDriver& driver, Nodes& nodes, int rounds,
                             Report& report);

}  // namespace ferry::bench
