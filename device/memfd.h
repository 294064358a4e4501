// SPDX-License-Identifier: Apache-2.0
// Checks that make a memfd from another process safe to map. Any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace ferry {

// Refuses a memfd that could raise SIGBUS under a copy. MEMFD_UNSEALED: no memfd, or one of the
// seals F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL is missing. FIELD_INVALID: huge pages, or shorter
// than `bytes`, or `bytes` is 0. Takes no longer than a system call.
absl::Status CheckMemfd(int fd, uint64_t bytes);

// Whether the descriptor may be memory of a GPU. True for a memfd, and for what the driver hands
// out, which is neither a file, a directory, a pipe nor a socket. Asks no file system, which may
// block.
bool MayBeGpuMemory(int fd);

}  // namespace ferry
