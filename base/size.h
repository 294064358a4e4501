// SPDX-License-Identifier: Apache-2.0
// Numbers of bytes as people write and read them, alike in the configuration and on the command
// line. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace ferry {

// "4096", "64KiB", "256 MiB", "1.5GiB" and, by powers of ten, "1GB": a number, and B, KB, MB, GB,
// TB, KiB, MiB, GiB or TiB in either case; none: bytes. Below 2^63. INVALID_ARGUMENT, with the text
// in it.
absl::StatusOr<uint64_t> ParseSize(const std::string& text);

// Exactly, for ParseSize: "64 GiB", "1048577 KiB".
std::string FormatSize(uint64_t bytes);

}  // namespace ferry
