// SPDX-License-Identifier: Apache-2.0
// Takes from this process what a compiler does not need: afterwards it can compute, allocate memory
// up to a bound, read and write the descriptors that it has, and end. It can open no file, make no
// socket, start no process or thread, make no memory executable and signal nobody else. Whatever
// it tries of that fails with EPERM. Not undone: for a process that does one thing.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace ferry::compute {

// Before anything else: no core dump, no file grows, `memory_bytes` of address space at most, and
// the process ends when the thread that has started it does.
absl::Status LimitProcess(uint64_t memory_bytes);

// From when all libraries are loaded; of the one thread that there is. UNAVAILABLE/NOT_READY if the
// kernel has no seccomp, and then nothing is taken.
absl::Status Confine();

// Whether Confine does anything: sanitizers need what it takes.
inline constexpr bool kConfines =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    false;
#else
    true;
#endif

}  // namespace ferry::compute
