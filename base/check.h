// SPDX-License-Identifier: Apache-2.0
// FERRY_CHECK ends the process when an invariant is broken, after writing the flight recorder to
// stderr: half-alive is worse than restarted. It stays on in release builds. Any thread.
#pragma once

namespace ferry {

[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);

}  // namespace ferry

#define FERRY_CHECK(condition)                       \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? (void)0                                     \
       : ::ferry::CheckFailed(__FILE__, __LINE__, #condition))
