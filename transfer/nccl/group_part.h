// SPDX-License-Identifier: Apache-2.0
// This end's part of one chunk of a group, by where it is in memory. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "transfer/pieces.h"

namespace ferry {

// `bytes` bytes of a layout, from the position of `cursor` on.
struct GroupPart {
  bool send = false;
  uint64_t bytes = 0;
  LayoutCursor cursor;
  absl::InlinedVector<std::byte*, 1> extents;  // where each extent of the layout begins
};

}  // namespace ferry
