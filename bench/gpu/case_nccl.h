// SPDX-License-Identifier: Apache-2.0
// The rows of route `nccl`, beside NCCL as a program calls it that has both GPUs to itself, with no
// client to hear and none to tell.
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

// Cases that say nothing of this route add nothing.
absl::Status MeasureBesideNccl(const GpuSettings& settings, const testing::GpuDriver* driver,
                               absl::string_view name,
                               const std::function<absl::StatusOr<tools::BenchPair>()>& open_pair,
                               Report& report);

}  // namespace ferry::bench
