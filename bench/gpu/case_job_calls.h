// SPDX-License-Identifier: Apache-2.0
// What a client of a GPU's daemon waits for: a tiny job that it posts by a call, beside a bare
// call; and a transfer of 64 KiB while jobs of other sessions fill the GPU, beside an idle one.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "bench/nodes.h"
#include "bench/report.h"

namespace ferry::bench {

// On the first GPU of the first node. `self`: this program, for the processes at other ends.
absl::Status MeasureJobCalls(const std::string& self, Nodes& nodes, Report& report);

}  // namespace ferry::bench
