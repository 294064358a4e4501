// SPDX-License-Identifier: Apache-2.0
// Makes texts that other programs, users and daemons have said safe to show to people. Pure; any
// thread.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace ferry {

// The number of bytes of the UTF-8 character that `text` begins with; 0 if it begins with none.
size_t Utf8Bytes(absl::string_view text);

// Replaces by \x.. what a terminal would obey and what ends a line (U+0000 to U+001F, DEL, U+0080
// to U+009F), and what is not UTF-8. The rest stays as it is.
std::string Printable(absl::string_view text);

}  // namespace ferry
