// SPDX-License-Identifier: Apache-2.0
// What a configuration says of the daemon's parts, in their own words: for the start, and again for
// each reload. Pure.
#pragma once

#include "daemon/compiled_program.h"
#include "daemon/config/config.h"
#include "daemon/session_table.h"
#include "transfer/engine.h"

namespace ferry {

// What a configuration says of sessions; who the daemon is, is not in it.
SessionTable::Options SessionLimitsOf(const Config& config);
TransferEngine::Bounds EngineBoundsOf(const Config& config);
JobLimits JobLimitsOf(const Config& config);

}  // namespace ferry
