// SPDX-License-Identifier: Apache-2.0
// Programs that send and receive between the GPUs of two daemons, in parts, so that computing and
// travelling overlap, beside a plain transfer of the same tensor in the same run.
#pragma once

#include "absl/status/status.h"
#include "bench/nodes.h"
#include "bench/report.h"
#include "tests/gpu/driver/gpu_driver.h"

namespace ferry::bench {

// From the first node's GPU, which is the driver's device 0, to the second's, which is device 1, by
// `route` (FERRY_ROUTE_...). `rounds`: alternations of each program with the transfer.
absl::Status MeasureFused(const testing::GpuDriver& driver, Nodes& nodes, int route, int rounds,
                          Report& report);

// Some of them while another process multiplies matrices on both GPUs (load.h).
absl::Status MeasureFusedUnderLoad(const testing::GpuDriver& driver, Nodes& nodes, int route,
                                   int rounds, Report& report);

}  // namespace ferry::bench
