// SPDX-License-Identifier: Apache-2.0
// Products of matrices by programs on a GPU: each as a prepared job that is fired again and again,
// beside cuBLASLt called bare on the same GPU in the same run.
#pragma once

#include "absl/status/status.h"
#include "bench/nodes.h"
#include "bench/report.h"
#include "tests/gpu/driver/gpu_driver.h"

namespace ferry::bench {

// By the first GPU of the first node, which is the driver's device 0. `rounds`: alternations of
// each product with the bare one. Says so and measures nothing if there is no cuBLASLt.
absl::Status MeasureProducts(const testing::GpuDriver& driver, Nodes& nodes, int rounds,
                             Report& report);

}  // namespace ferry::bench
