// SPDX-License-Identifier: Apache-2.0
// Guesses what a misspelt word was meant to be. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ferry {

// The word in `words` that differs least from `word` (the first of several); "" if none is near.
std::string Nearest(absl::string_view word, const std::vector<std::string>& words);

// Whether one of two keys or paths may be a slip for the other. True if they begin alike for half
// of the longer one; if they differ in one place by at most two characters and a quarter of the
// longer one; or if they are paths that end in the same name.
bool Alike(absl::string_view a, absl::string_view b);

}  // namespace ferry
