// SPDX-License-Identifier: Apache-2.0
// Writes the launches of checksum, delta_encode and delta_apply (kernels/bytes.cuh). A pure
// function; any thread.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "compute/cuda/kernel_code.h"
#include "compute/program/delta.h"

namespace ferry::compute {

// What of a delta_encode is to be written beside the bitmap.
struct DeltaWanted {
  bool values = true;
  bool count = true;
  bool checksum = true;
};

// The launches of `node`. The buffers of their arguments are the op's operands, its buffer if it
// has one, and its results, in this order. `alignments`: powers of two, of each of them.
KernelCode WriteBytesOp(const Program& program, const Node& node, const DeltaWanted& wanted,
                        absl::Span<const uint32_t> alignments);

}  // namespace ferry::compute
