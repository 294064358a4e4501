// SPDX-License-Identifier: Apache-2.0
// The limits of the daemon's process (ulimit), compared with what a configuration needs before
// anything is built: a limit that is met later would end the daemon, or leave it serving nobody.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "daemon/config/config.h"

namespace ferry {

// How many threads run the jobs of all sessions.
size_t JobThreads(const Config& config);

// Raises the limits of descriptors and of a file's size as far as this process may. The error of a
// limit that is too small says what it is, how much is needed, and how to set it. Called once, by
// the main thread, before others are started.
absl::Status PrepareProcessLimits(const Config& config);
// The part of it that is about descriptors, also later: further peers need more of them.
absl::Status CheckDescriptors(const Config& config);

}  // namespace ferry
