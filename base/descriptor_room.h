// SPDX-License-Identifier: Apache-2.0
// Checks whether as many descriptors can be opened as the caller is about to need. gRPC does not
// report it: without one of its descriptors it ends the process. Any thread.
#pragma once

#include <errno.h>
#include <sys/eventfd.h>

#include <cstddef>
#include <vector>

#include "base/fd.h"

namespace ferry {

// Descriptors that gRPC, and a session beside it, open in a process of few calls, and some to
// spare.
inline constexpr size_t kGrpcDescriptors = 20;

// 0 if `count` more descriptors can be opened now; else the errno of the first that cannot.
inline int RoomForDescriptors(size_t count) {
  std::vector<UniqueFd> opened;
  for (size_t i = 0; i < count; ++i) {
    opened.emplace_back(eventfd(0, EFD_CLOEXEC));
    if (!opened.back().valid()) return errno;
  }
  return 0;
}

}  // namespace ferry
