// SPDX-License-Identifier: Apache-2.0
// What of a plan is other daemons' business: its sends and receives, and where a run has to wait
// for them. An executor runs the steps of a stage on end; whoever runs it begins transfers when
// their step has come, and the next stage when what it awaits is over. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compute/plan/plan.h"
#include "compute/program/program.h"

namespace ferry::compute {

// A step of the plan that is a transfer.
struct PlanTransfer {
  size_t step = 0;  // index of Plan::steps
  bool sends = false;
  std::optional<uint64_t> device;  // the other end; nothing: the run says which device `peer` is
  std::string peer;
  std::string key;
  TensorType type;
  Binding at;           // a slot, or of a send one of the program's buffers
  uint64_t offset = 0;  // of its first byte there
};
// In the order of their steps.
std::vector<PlanTransfer> TransfersOf(const Plan& plan);
// What a step sends or receives, which is step 0 of the result; nothing if it is no transfer.
std::optional<PlanTransfer> TransferOf(const Step& step);

// Steps that follow each other, from the end of the stage before.
struct Stage {
  size_t end = 0;               // the first step that is not of it
  std::vector<size_t> awaited;  // indices of TransfersOf: over before it begins
};
// At least one; one if nothing waits for a transfer in between.
std::vector<Stage> StagesOf(const Plan& plan);

}  // namespace ferry::compute
