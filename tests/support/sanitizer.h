// SPDX-License-Identifier: Apache-2.0
// What tests must allow for under AddressSanitizer. Any thread.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ferry::testing {

// Bytes that a bound of a program's memory must allow besides: the sanitizer keeps so much of what
// was freed, to see uses of it.
#ifdef __SANITIZE_ADDRESS__
inline constexpr uint64_t kFreedAndKept = uint64_t{256} << 20;
#else
inline constexpr uint64_t kFreedAndKept = 0;
#endif

// The environment ("NAME=VALUE") of a program that has this library before all others, of which the
// sanitizer wants to be the first one.
inline std::vector<std::string> Preloaded(const char* library) {
  const char* const options = getenv("ASAN_OPTIONS");
  return {absl::StrCat("LD_PRELOAD=", library),
          absl::StrCat("ASAN_OPTIONS=", options == nullptr ? "" : options,
                       ":verify_asan_link_order=0")};
}

}  // namespace ferry::testing
