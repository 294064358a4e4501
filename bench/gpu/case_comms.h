// SPDX-License-Identifier: Apache-2.0
// What communicators cost, how they end and come back, and what many of them do to one another;
// with daemons of their own, since these are killed and their first communicator is measured.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "bench/gpu/cases.h"
#include "bench/report.h"
#include "tests/gpu/driver/gpu_driver.h"

namespace ferry::bench {

// `name`: one of these. Nobody else may have daemons on the GPUs.
inline constexpr const char* kCommCases[] = {"comms", "loss", "cliques"};
absl::Status MeasureComms(const GpuSettings& settings, const testing::GpuDriver& driver,
                          absl::string_view name, Report& report);

}  // namespace ferry::bench
