// SPDX-License-Identifier: Apache-2.0
// ChecksumPart of numerics/checksum.h as a loop for the best instructions that the CPU has. It
// gives the same bits. A pure function; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/numerics/checksum.h"

namespace ferry::compute {

Checksum ChecksumPartFast(const std::byte* data, uint64_t bytes, uint64_t first_word);

}  // namespace ferry::compute
