// SPDX-License-Identifier: Apache-2.0
// A compute program run here and now, by this process's CPU, over files. Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compute/program/program.h"

namespace ferry::tools {

// `bindings` are NAME=PATH, one for each buffer of `program`, which Verify accepts. What it reads
// comes from files of just the buffers' sizes; what it writes takes the place of files when all is
// done, beginning with zeros where it is not read.
absl::Status RunProgram(const compute::Program& program, const std::vector<std::string>& bindings,
                        size_t threads);

}  // namespace ferry::tools
