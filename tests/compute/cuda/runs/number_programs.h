// SPDX-License-Identifier: Apache-2.0
// Programs that show how single numbers are rounded: kernels have ways of their own for that, which
// a GPU has instructions for. Pure functions.
#pragma once

#include <vector>

#include "compute/program/program.h"

namespace ferry::compute::testing {

// Every 2^14th f32 as each narrower type, in each mode: all ties of narrow types, subnormals,
// infinities and NaN. And every f16, bf16, f8e4m3fn and f8e5m2. And every f16 and bf16 in blocks.
std::vector<Program> ConversionPrograms();

// Numbers over a value of their row: of all exponents up to 0, of which some are divided as they
// are, and near 1, which are multiplied by the rounded reciprocal.
std::vector<Program> QuotientPrograms();

}  // namespace ferry::compute::testing
