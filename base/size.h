// SPDX-License-Identifier: Apache-2.0
// Numbers of bytes as people write and read them, in the same form in the configuration and on the
// command line. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace ferry {

// Parses a number and a unit: "4096", "64KiB", "256 MiB", "1.5GiB", and by powers of ten "1GB".
// Units are B, KB, MB, GB, TB, KiB, MiB, GiB and TiB in either case; without a unit the number is
// of bytes. The result is below 2^63. INVALID_ARGUMENT has the text in it.
absl::StatusOr<uint64_t> ParseSize(const std::string& text);

// An exact text that ParseSize reads back: "64 GiB", "1048577 KiB".
std::string FormatSize(uint64_t bytes);

}  // namespace ferry
