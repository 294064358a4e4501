// SPDX-License-Identifier: Apache-2.0
// Counts how often each thread of this test program calls operator new.
#pragma once

#include <cstdint>

namespace ferry {

// The calls of the calling thread since it began.
uint64_t Allocations();

}  // namespace ferry
