// SPDX-License-Identifier: Apache-2.0
// Ops that run by themselves, from whole tensors in memory to whole tensors in memory. Pure
// functions on memory that they are given; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/host/run_control.h"
#include "compute/host/workers.h"
#include "compute/program/program.h"

namespace ferry::compute {

// An op with the types of its operands and results.
struct WholeOp {
  Node node;
  std::vector<TensorType> in_types;
  std::vector<TensorType> out_types;
  // By result: whether its memory is to be written to; the first one always is.
  std::vector<bool> wanted;
};

// Whether the op is run in this way, or by product.h.
bool IsWholeOp(Op op);
// Runs an op that is no product; those are product.h's. Running sums, and ops that take bytes, ask
// `control` now and then, and are left half done if the run stops; an op that only moves elements
// is one launch. Ops that take bytes share the work among `workers`, which may be null. Of a
// delta_apply, `out` has the memory that it changes.
void RunWholeOp(const WholeOp& op, const std::vector<const std::byte*>& in,
                const std::vector<std::byte*>& out, Workers* workers, RunControl& control);

}  // namespace ferry::compute
