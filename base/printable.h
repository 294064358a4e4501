// SPDX-License-Identifier: Apache-2.0
// Texts that other programs, users and daemons have said, as people may be shown them. Pure; any
// thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ferry {

// With \x.. for what a terminal obeys or what ends a line: U+0000 to U+001F, DEL, and U+0080 to
// U+009F. The rest stays as it is.
std::string Printable(absl::string_view text);

}  // namespace ferry
