// SPDX-License-Identifier: Apache-2.0
// Compares the limits of the daemon's process (ulimit) with what a configuration needs, before
// anything is built. Without this, a limit that is met later would end the daemon, or leave it
// running and serving nobody.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "daemon/config/config.h"

namespace ferry {

// How many threads compute the jobs of all sessions.
size_t JobThreads(const Config& config);

// Raises the limits of descriptors and of a file's size as far as this process may. If one is still
// too small, the error says which, how much is needed, and how to set it. Called once, by the main
// thread, before it starts other threads.
absl::Status PrepareProcessLimits(const Config& config);
// Checks only the limit of descriptors. Called also later: further peers need more of them.
absl::Status CheckDescriptors(const Config& config);

}  // namespace ferry
