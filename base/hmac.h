// SPDX-License-Identifier: Apache-2.0
// HMAC-SHA256, by which daemons prove to each other that they know a secret without saying it.
// Pure; any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ferry {

inline constexpr size_t kHmacBytes = 32;

// Returns kHmacBytes bytes.
std::string HmacSha256(absl::string_view key, absl::string_view message);
// Compares in a time that does not depend on where the two differ.
bool SameBytes(absl::string_view a, absl::string_view b);

}  // namespace ferry
