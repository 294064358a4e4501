// SPDX-License-Identifier: Apache-2.0
#include "compute/host/constant_slots.h"

#include <algorithm>
#include <optional>

#include "compute/host/whole_ops.h"

namespace ferry::compute {
namespace {

struct Uses {
  size_t writers = 0;
  bool of_products = true;  // who reads it
};

void CountUses(const std::vector<Step>& steps, std::vector<Uses>& uses) {
  for (const Step& step : steps) {
    // What the plan itself has them for.
    if (step.count) uses[*step.count].of_products = false;
    if (step.scratch) uses[*step.scratch].of_products = false;
    for (const Node& node : step.program.nodes) {
      for (const BufferRange& range : RangesOf(step.program, node)) {
        const Binding& binding = step.bindings[range.buffer];
        if (!binding.slot) continue;
        if (range.writes) ++uses[binding.index].writers;
        if (range.reads && step.kind != StepKind::kProduct) uses[binding.index].of_products = false;
      }
    }
    CountUses(step.steps, uses);
  }
}

// The slot that all of the step is for, if it is made of constants.
std::optional<uint32_t> SlotOf(const Plan& plan, const Step& step,
                               const std::vector<bool>& constant) {
  std::optional<uint32_t> slot;
  bool reads = false;
  for (const Node& node : step.program.nodes) {
    if (IsWholeOp(node.op)) return std::nullopt;
    for (const BufferRange& range : RangesOf(step.program, node)) {
      const Binding& binding = step.bindings[range.buffer];
      if (range.writes) {
        if (!binding.slot || slot || range.reads) return std::nullopt;
        slot = binding.index;
      } else if (binding.slot ? !constant[binding.index] : !plan.buffers[binding.index].constant) {
        return std::nullopt;
      } else {
        reads = true;
      }
    }
  }
  return reads ? slot : std::nullopt;
}

}  // namespace

std::vector<bool> ConstantSlots(const Plan& plan) {
  std::vector<Uses> uses(plan.slots.size());
  CountUses(plan.steps, uses);
  std::vector<bool> constant(plan.slots.size());
  for (const Step& step : plan.steps) {
    if (step.kind != StepKind::kKernel) continue;
    const std::optional<uint32_t> slot = SlotOf(plan, step, constant);
    if (slot && uses[*slot].writers == 1 && uses[*slot].of_products) constant[*slot] = true;
  }
  return constant;
}

}  // namespace ferry::compute
