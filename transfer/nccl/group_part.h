// SPDX-License-Identifier: Apache-2.0
// Our part of one chunk of a group, where its memory is. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "transfer/pieces.h"

namespace ferry {

// `bytes` of a layout, from where `cursor` is.
struct GroupPart {
  bool send = false;
  uint64_t bytes = 0;
  LayoutCursor cursor;
  absl::InlinedVector<std::byte*, 1> extents;  // where each extent of the layout begins
};

}  // namespace ferry
