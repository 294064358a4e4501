// SPDX-License-Identifier: Apache-2.0
// What a misspelt word was meant to be. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ferry {

// The one of `words` that differs least from `word`, the first of several; "" if none is like it.
std::string Nearest(absl::string_view word, const std::vector<std::string>& words);

}  // namespace ferry
