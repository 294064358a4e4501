// SPDX-License-Identifier: Apache-2.0
// HMAC-SHA256, with which daemons prove to each other what they know without saying it. Pure; any
// thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ferry {

inline constexpr size_t kHmacBytes = 32;

// 32 bytes.
std::string HmacSha256(absl::string_view key, absl::string_view message);
// Whether both are the same bytes, in a time that tells nothing of where they differ.
bool SameBytes(absl::string_view a, absl::string_view b);

}  // namespace ferry
