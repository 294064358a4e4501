// SPDX-License-Identifier: Apache-2.0
// The reference evaluator: computes what a program does to its buffers, on whole tensors, one op
// after the other, as docs/programs.md and docs/numerics.md define it. Shares no code with
// executors. Single-threaded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compute/program/program.h"
#include "tests/compute/reference/memory.h"
#include "tests/compute/reference/tensor.h"

namespace ferry::compute::testing {

// Plays the other ends of a program's transfers.
struct Transfers {
  std::function<void(int64_t device, const std::string& key, const Tensor&)> send;
  std::function<Tensor(int64_t device, const std::string& key, const TensorType&)> receive;
};

// `program` must be one that Verify accepts. `buffers` are those of the program, in its order, each
// of its size.
void Evaluate(const Program& program, std::vector<Memory>& buffers,
              const Transfers& transfers = {});

// The results of one op that has neither an effect nor a body.
std::vector<Tensor> EvaluateOp(const Numerics& numerics, const Node& node,
                               const std::vector<TensorType>& results,
                               const std::vector<const Tensor*>& in);

}  // namespace ferry::compute::testing
