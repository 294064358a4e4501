// SPDX-License-Identifier: Apache-2.0
// Ops that are run by themselves, from whole tensors to whole tensors in memory. Pure functions of
// memory that is given to them; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/host/run_control.h"
#include "compute/program/program.h"

namespace ferry::compute {

struct WholeOp {
  Node node;
  std::vector<TensorType> in_types;
  std::vector<TensorType> out_types;
};

bool IsWholeOp(Op op);
// Those of a product are product.h's. Running sums ask `control` now and then, and are left half
// done if the run stops; what only moves elements is one launch.
void RunWholeOp(const WholeOp& op, const std::vector<const std::byte*>& in,
                const std::vector<std::byte*>& out, RunControl& control);

}  // namespace ferry::compute
