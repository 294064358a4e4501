// SPDX-License-Identifier: Apache-2.0
// The daemon's programs and jobs, for people or as JSON. Any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/ferryctl/globals.h"

namespace ferry::tools {

absl::StatusOr<std::string> ListPrograms(const Globals& globals);

}  // namespace ferry::tools
