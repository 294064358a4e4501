// SPDX-License-Identifier: Apache-2.0
// What a misspelt word was meant to be. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ferry {

// The one of `words` that differs least from `word`, the first of several; "" if none is like it.
std::string Nearest(absl::string_view word, const std::vector<std::string>& words);

// Whether who has one key, or path, may have meant the other: they begin alike for half of the
// longer one, or differ in one place by two characters and a quarter of the longer one at most, or
// are paths that end in the same name.
bool Alike(absl::string_view a, absl::string_view b);

}  // namespace ferry
