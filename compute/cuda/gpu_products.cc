// SPDX-License-Identifier: Apache-2.0
// Products: what is before one in memory first, then a kernel or cuBLASLt, then what is after it.
#include <algorithm>

#include "base/status.h"
#include "compute/cuda/gpu_planner.h"
#include "compute/cuda/kernel_writer.h"

namespace ferry::compute {
namespace {

bool IsProduct(const Node& node) {
  return node.op == Op::kDotGeneral || node.op == Op::kBlockScaledDot;
}

// Is it there without anything being computed, or one element?
bool IsThere(const Program& program, const std::vector<OpIndex>& definitions, ValueId value) {
  const Node& node = program.nodes[definitions[value]];
  if (IsMove(node.op)) return IsThere(program, definitions, node.operands[0]);
  return node.op == Op::kInput || node.op == Op::kConstant || node.op == Op::kIota;
}

}  // namespace

absl::Status GpuPlanner::AddProduct(const Step& step, std::vector<GpuCommand>& commands) {
  const Program& program = step.program;
  const std::vector<OpIndex> definitions = DefinitionsOf(program);
  std::vector<GpuPlace> places;
  for (const Binding& binding : step.bindings) places.push_back(PlaceOf(binding));
  const auto found = std::find_if(program.nodes.begin(), program.nodes.end(), IsProduct);
  Part rest(program);
  std::vector<GpuPlace> rest_places = places;
  std::map<ValueId, bool> factors;
  for (const ValueId value : found->operands) {
    if (IsThere(program, definitions, value) || !factors.try_emplace(value).second) continue;
    const uint64_t bytes = *BytesOf(program.types[value]);
    const GpuPlace place = Temporary(bytes, "a factor");
    Part before(program);
    before.Store(value, before.AddBuffer(bytes));
    std::vector<GpuPlace> before_places = places;
    before_places.push_back(place);
    RETURN_IF_ERROR(AddKernel(before.program(), std::move(before_places), commands, step.label));
    rest.Read(value, rest.AddBuffer(bytes));
    rest_places.push_back(place);
  }
  for (const Node& node : program.nodes) {
    if (node.op == Op::kStore || node.op == Op::kAccumulate) rest.Put(node);
  }
  return AddKernel(rest.program(), std::move(rest_places), commands, step.label);
}

}  // namespace ferry::compute
