// SPDX-License-Identifier: Apache-2.0
// Which values of a plan products need that are made of constant buffers alone, so that one run can
// make them for all: weights that a kernel of their own converts or dequantises. A pure function.
#pragma once

#include <vector>

#include "compute/plan/plan.h"

namespace ferry::compute {

// By slot: one kernel writes it, which is no part of a repeat and writes nothing else, reads
// constant buffers (or other such slots) and nothing else; and only products read it.
std::vector<bool> ConstantSlots(const Plan& plan);

}  // namespace ferry::compute
