// SPDX-License-Identifier: Apache-2.0
// Finds the values of a plan that one run can make for all later runs: operands of products that
// are made from constant buffers alone. Example: weights that a kernel of their own converts or
// dequantises. A pure function.
#pragma once

#include <vector>

#include "compute/plan/plan.h"

namespace ferry::compute {

// By slot of the plan: whether it is such a value. One kernel writes the slot. That kernel is not
// part of a repeat, writes nothing else, and reads only constant buffers or other such slots. Only
// products read the slot.
std::vector<bool> ConstantSlots(const Plan& plan);

}  // namespace ferry::compute
