// SPDX-License-Identifier: Apache-2.0
// Programs whose kernels together are every kernel template, for each type that it takes. Pure
// function.
#pragma once

#include <vector>

#include "compute/program/program.h"

namespace ferry::compute::testing {

std::vector<Program> KernelPrograms();

}  // namespace ferry::compute::testing
