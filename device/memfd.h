// SPDX-License-Identifier: Apache-2.0
// What makes a memfd of somebody else safe to map. Any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace ferry {

// Refuses what could raise SIGBUS under a copy: not a memfd, seals F_SEAL_SHRINK | F_SEAL_GROW |
// F_SEAL_SEAL missing (MEMFD_UNSEALED), huge pages (FIELD_INVALID), shorter than `bytes`
// (FIELD_INVALID), bytes == 0. Blocks no longer than a system call does.
absl::Status CheckMemfd(int fd, uint64_t bytes);

// What may come as memory of a GPU: what the driver hands out, which is neither a file, a directory
// or a pipe, nor a socket; or a memfd. Asks no file system, which may wait.
bool MayBeGpuMemory(int fd);

}  // namespace ferry
