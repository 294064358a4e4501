// SPDX-License-Identifier: Apache-2.0
// Translates a Config into the options of the daemon's parts: at the start, and again at each
// reload. Pure.
#pragma once

#include "daemon/config/config.h"
#include "daemon/job/compiled_program.h"
#include "daemon/session/session_table.h"
#include "transfer/engine.h"

namespace ferry {

// The limits of sessions. The fields that say who the daemon is (node, incarnation) are left unset.
SessionTable::Options SessionLimitsOf(const Config& config);
TransferEngine::Bounds EngineBoundsOf(const Config& config);
JobLimits JobLimitsOf(const Config& config);

}  // namespace ferry
