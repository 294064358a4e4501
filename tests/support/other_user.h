// SPDX-License-Identifier: Apache-2.0
// Runs code as another user of this host. Needs root; a test without it must skip.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "base/check.h"

namespace ferry::testing {

inline constexpr uid_t kHostileUser = 61234;

// Runs `run` on a thread of its own, which alone becomes that user. Sockets that it connects are
// the user's.
inline void AsUser(uid_t user, const std::function<void()>& run) {
  std::thread([&] {
    FERRY_CHECK(syscall(SYS_setresuid, user, user, user) == 0);
    run();
  }).join();
}

}  // namespace ferry::testing
