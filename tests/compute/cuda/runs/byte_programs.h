// SPDX-License-Identifier: Apache-2.0
// Programs of the ops that take tensors as bytes. A pure function.
#pragma once

#include <vector>

#include "compute/program/program.h"

namespace ferry::compute::testing {

// Checksums, and deltas of every size of block: that fit, that do not, of nothing, at odd
// addresses, with results that nobody wants.
std::vector<Program> BytePrograms();

// A delta of `bytes` bytes in blocks of `block`, with room for `capacity`, that is applied too:
// buffers @old, @new, @bitmap, @values, @count, @sum, and @is for the checksum of the result.
Program DeltaProgram(uint64_t bytes, uint64_t block, uint64_t capacity);

}  // namespace ferry::compute::testing
