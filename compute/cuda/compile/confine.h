// SPDX-License-Identifier: Apache-2.0
// Takes from this process what a compiler does not need. Afterwards it can compute, allocate memory
// up to a bound, read and write the descriptors that it has, and end. It cannot open a file, make a
// socket, start a process or thread, make memory executable, or signal another process: these fail
// with EPERM. It cannot be undone: for a process that does one thing.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace ferry::compute {

// Call it before anything else. Afterwards the process makes no core dump, grows no file, has at
// most `memory_bytes` of address space, and ends when the thread that started it does.
absl::Status LimitProcess(uint64_t memory_bytes);

// Call it once all libraries are loaded, on the only thread. UNAVAILABLE/NOT_READY if the kernel
// has no seccomp; then nothing is taken.
absl::Status Confine();

// Whether Confine() does anything: not under sanitizers, which need what it takes.
inline constexpr bool kConfines =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    false;
#else
    true;
#endif

}  // namespace ferry::compute
