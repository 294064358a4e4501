// SPDX-License-Identifier: Apache-2.0
// Names the limit of the process that is behind an errno, so that a user knows what to raise. Any
// thread. Used by the client library too, so it needs nothing but the C and C++ libraries.
#pragma once

#include <errno.h>
#include <sys/resource.h>

#include <string>

namespace ferry {

// For example "; this process may have 8 descriptors (ulimit -n)"; "" if no limit is behind
// `error`.
inline std::string LimitText(int error) {
  const auto of = [](auto resource, const char* what, const char* option) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::string();
    return "; this process may have " + std::to_string(limit.rlim_cur) + " " + what + " (ulimit " +
           option + ")";
  };
  switch (error) {
    case EMFILE:
      return of(RLIMIT_NOFILE, "descriptors", "-n");
    case ENFILE:
      return "; the host may have no more open files (fs.file-max)";
    case ENOMEM:
      return of(RLIMIT_AS, "bytes of address space", "-v");
    case EFBIG:
      return of(RLIMIT_FSIZE, "bytes in a file", "-f");
    default:
      return "";
  }
}

}  // namespace ferry
