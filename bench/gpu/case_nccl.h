// SPDX-License-Identifier: Apache-2.0
// The rows of route `nccl`, compared with NCCL as a program calls it that has both GPUs to itself
// and serves no clients.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/gpu/cases.h"
#include "bench/report.h"
#include "tests/gpu/driver/gpu_driver.h"
#include "tools/ferryctl/bench_pair.h"

namespace ferry::bench {

// Cases that say nothing about this route add no rows.
absl::Status MeasureBesideNccl(const GpuSettings& settings, const testing::GpuDriver* driver,
                               absl::string_view name,
                               const std::function<absl::StatusOr<tools::BenchPair>()>& open_pair,
                               Report& report);

}  // namespace ferry::bench
