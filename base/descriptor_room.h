// SPDX-License-Identifier: Apache-2.0
// Whether as many descriptors can be opened as somebody is about to need. gRPC does not say so:
// without one of its descriptors it ends the process. Any thread.
#pragma once

#include <errno.h>
#include <sys/eventfd.h>

#include <cstddef>
#include <vector>

#include "base/fd.h"

namespace ferry {

// What gRPC, and a session beside it, open in a process whose calls are few, and some more.
inline constexpr size_t kGrpcDescriptors = 20;

// 0, or the errno of one of `count` descriptors that cannot be opened beside those that are there.
inline int RoomForDescriptors(size_t count) {
  std::vector<UniqueFd> opened;
  for (size_t i = 0; i < count; ++i) {
    opened.emplace_back(eventfd(0, EFD_CLOEXEC));
    if (!opened.back().valid()) return errno;
  }
  return 0;
}

}  // namespace ferry
