// SPDX-License-Identifier: Apache-2.0
// Reads the secret that all daemons of a cluster share, from the file that peer.secret_file names.
// Pure but for that file.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace ferry {

inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 4096;

// The file's bytes as they are. Refuses what is no plain file, a file that is neither root's nor
// this user's, and a file that others may read or write (its group may read it). Refuses a secret
// shorter than kMinSecretBytes or longer than kMaxSecretBytes.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

}  // namespace ferry
