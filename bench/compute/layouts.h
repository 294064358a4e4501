// SPDX-License-Identifier: Apache-2.0
// How much the layout of a tensor costs: reductions over other dimensions than the last beside one
// over the last, transposes beside a copy.
#pragma once

#include <cstddef>

#include "bench/compute/side_by_side.h"

namespace ferry::bench {

void Reductions(Bench& bench, size_t threads);
void Transposes(Bench& bench, size_t threads);

}  // namespace ferry::bench
