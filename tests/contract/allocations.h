// SPDX-License-Identifier: Apache-2.0
// Counts what each thread of this test program allocates by operator new.
#pragma once

#include <cstdint>

namespace ferry {

// By the calling thread, since it began.
uint64_t Allocations();

}  // namespace ferry
