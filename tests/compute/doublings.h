// SPDX-License-Identifier: Apache-2.0
// The text of a program of as many steps as a test wants. Any thread.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace ferry::compute::testing {

// `steps` doublings of 8 numbers, from buffer 0 to buffer `steps`. Each is a launch and a step of
// its own, since each writes a buffer that the next one reads.
inline std::string Doublings(int steps) {
  std::string text = "program 1\n", ops;
  for (int i = 0; i <= steps; ++i) {
    absl::StrAppend(&text, "buffer @b", i, i == 0 ? " read" : " read_write", " 32\n");
  }
  for (int i = 0; i < steps; ++i) {
    absl::StrAppend(&ops, "%x", i, " = input @b", i, " : i32[8]",
                    i == 0 ? "" : absl::StrCat(" after ^s", i - 1), "\n%y", i, " = add %x", i,
                    ", %x", i, "\n^s", i, ": store @b", i + 1, ", %y", i, "\n");
  }
  return text + ops;
}

}  // namespace ferry::compute::testing
