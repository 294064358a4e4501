// SPDX-License-Identifier: Apache-2.0
// The secret that all daemons of a cluster share, from the file that peer.secret_file names. Pure
// but for that file.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace ferry {

inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 4096;

// The file's bytes as they are. Refused unless it is a plain file of root's or our own that nobody
// else may read or write, but for a group that may read.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

}  // namespace ferry
