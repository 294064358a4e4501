// SPDX-License-Identifier: Apache-2.0
// What a killed client leaves behind, how long its successor takes to its first transfer, and
// streams that wait while their daemon is killed.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/gpu/cases.h"
#include "bench/nodes.h"
#include "bench/report.h"
#include "tests/gpu/driver/gpu_driver.h"
#include "tools/ferryctl/bench_pair.h"

namespace ferry::bench {

struct LossEnds {
  Nodes& nodes;
  int there = 0;             // node of the destination; the source's is the first node
  uint64_t source = 0;       // global ids
  uint64_t destination = 0;  // kDestinationGpu
  int route = 0;
  std::function<absl::StatusOr<tools::BenchPair>()> open_pair;
};

absl::Status MeasureGpuLoss(const GpuSettings& settings, const testing::GpuDriver& driver,
                            const LossEnds& ends, Report& report);

}  // namespace ferry::bench
