// SPDX-License-Identifier: Apache-2.0
// What communicators cost, how they end and come back, and how many of them disturb one another.
// Starts daemons of its own, because it kills them and measures their first communicator.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "bench/gpu/cases.h"
#include "bench/report.h"
#include "tests/gpu/driver/gpu_driver.h"

namespace ferry::bench {

// `name`: one of kCommCases. Nobody else may have daemons on the GPUs.
inline constexpr const char* kCommCases[] = {"comms", "loss", "cliques"};
absl::Status MeasureComms(const GpuSettings& settings, const testing::GpuDriver& driver,
                          absl::string_view name, Report& report);

}  // namespace ferry::bench
