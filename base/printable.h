// SPDX-License-Identifier: Apache-2.0
// Texts that other programs, users and daemons have said, as people may be shown them. Pure; any
// thread.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace ferry {

// Bytes of the UTF-8 character that `text` begins with; 0 if it begins with none.
size_t Utf8Bytes(absl::string_view text);

// With \x.. for what a terminal obeys or what ends a line (U+0000 to U+001F, DEL, U+0080 to
// U+009F), and for what is no UTF-8. The rest stays as it is.
std::string Printable(absl::string_view text);

}  // namespace ferry
