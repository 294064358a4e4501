// SPDX-License-Identifier: Apache-2.0
// Waits for what another process does, where nothing signals it: asks again until it is so. Any
// thread.
#pragma once

#include <poll.h>

#include <chrono>

namespace ferry::testing {

using Clock = std::chrono::steady_clock;

// For what must happen: far beyond ten times any bound of the product, so that only a hang fails.
inline constexpr std::chrono::seconds kSoon{30};

// True as soon as `condition()` is true; false after `patience`.
template <typename Condition>
bool Await(Condition condition, std::chrono::milliseconds patience = kSoon) {
  const auto deadline = Clock::now() + patience;
  int pause = 1;
  while (!condition()) {
    if (Clock::now() >= deadline) return false;
    poll(nullptr, 0, pause);
    if (pause < 16) pause *= 2;
  }
  return true;
}

}  // namespace ferry::testing
