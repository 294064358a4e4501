// SPDX-License-Identifier: Apache-2.0
// A broken invariant ends the process: the flight recorder's story is written to stderr first.
// Half-alive is worse than restarted. Stays on in release builds. Any thread.
#pragma once

namespace ferry {

[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);

}  // namespace ferry

#define FERRY_CHECK(condition)                       \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? (void)0                                     \
       : ::ferry::CheckFailed(__FILE__, __LINE__, #condition))
