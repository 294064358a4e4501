// SPDX-License-Identifier: Apache-2.0
// The part of a plan that concerns other daemons: its sends and receives, and where a run must wait
// for them. An executor runs the steps of a section without a pause. Its caller begins a transfer
// when the transfer's step has come, and the next section when the transfers that it awaits are
// over. Pure; any thread.
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
  std::optional<uint64_t> device;  // the other end; not set: the run gives the device of `peer`
  std::string peer;
  std::string key;
  TensorType type;
  Binding at;           // a slot; a send may also be from one of the program's buffers
  uint64_t offset = 0;  // of the first byte there
};
// The transfers in the order of their steps.
std::vector<PlanTransfer> TransfersOf(const Plan& plan);
// The transfer that a step is, with `step` 0; nothing if it is none.
std::optional<PlanTransfer> TransferOf(const Step& step);

// Consecutive steps, from the end of the section before.
struct Section {
  size_t end = 0;  // the first step after the section
  // Indices in TransfersOf(): transfers that are over before the section begins.
  std::vector<size_t> awaited;
};
// At least one section; exactly one if no step waits for a transfer.
std::vector<Section> SectionsOf(const Plan& plan);

}  // namespace ferry::compute
