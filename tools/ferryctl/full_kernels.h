// SPDX-License-Identifier: Apache-2.0
// Waits until a daemon runs its programs by kernels that are compiled in full: for whoever measures
// them. Any thread.
#pragma once

#include "absl/status/status.h"
#include "tools/ferryctl/globals.h"

namespace ferry::tools {

// Returns once the daemon compiles no kernel of its programs any more. Needs admin.sock: its errors
// are an AdminClient's. DEADLINE_EXCEEDED/NOT_READY after two minutes.
absl::Status AwaitFullKernels(const Globals& globals);

}  // namespace ferry::tools
