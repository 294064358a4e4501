// SPDX-License-Identifier: Apache-2.0
#include "compute/plan/plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/plan/assemble.h"
#include "compute/plan/graph.h"

namespace ferry::compute {
namespace {

// Numbers steps and says from which to which each slot is there.
class Lifetimes {
 public:
  explicit Lifetimes(Graph& graph) : graph_(graph), seen_(graph.slots.size()) {}

  void Run(std::vector<Step>& steps) {
    Pass(steps, 0);
    for (const uint32_t slot : sent_) graph_.slots[slot].last = next_ - 1;
    for (const uint32_t slot : received_) {  // what nobody reads comes some time
      Slot& one = graph_.slots[slot];
      if (one.last == one.first) one.last = next_ - 1;
    }
  }
  bool IsUsed(uint32_t slot) const { return seen_[slot]; }

 private:
  struct Open {
    BlockId block = 0;
    std::vector<uint32_t> outer;  // slots of blocks around that its steps have to do with
  };

  void Pass(std::vector<Step>& steps, BlockId block) {
    blocks_.push_back({block, {}});
    for (Step& step : steps) {
      step.number = next_++;
      for (const Binding& binding : step.bindings) {
        if (!binding.slot) continue;
        Use(binding.index, step.number);
        if (step.kind == StepKind::kSend) sent_.push_back(binding.index);
        if (step.kind == StepKind::kRecv) received_.push_back(binding.index);
      }
      if (step.scratch) Use(*step.scratch, step.number);
      if (step.kind == StepKind::kRepeat) {
        const BlockId body = BodyOf(step);
        if (step.count) Use(*step.count, step.number);
        Pass(step.steps, body);
      }
    }
    const std::vector<uint32_t> outer = std::move(blocks_.back().outer);
    blocks_.pop_back();
    // Until the last trip is over.
    for (const uint32_t slot : outer) Use(slot, next_ - 1);
    std::vector<uint32_t> places;
    for (const Step& step : steps) places.push_back(step.number);
    for (Step& step : steps) {
      for (uint32_t& other : step.after) other = places[other];
    }
  }

  BlockId BodyOf(const Step& step) const {
    for (const Item& item : graph_.items) {
      if (item.body && item.origin == step.origins[0]) return *item.body;
    }
    return 0;
  }

  void Use(uint32_t slot, uint32_t number) {
    Slot& one = graph_.slots[slot];
    one.first = seen_[slot] ? std::min(one.first, number) : number;
    one.last = std::max(one.last, number);
    seen_[slot] = true;
    if (!blocks_.empty() && graph_.slot_blocks[slot] < blocks_.back().block) {
      blocks_.back().outer.push_back(slot);
    }
  }

  Graph& graph_;
  uint32_t next_ = 0;
  std::vector<bool> seen_;
  std::vector<uint32_t> sent_;
  std::vector<uint32_t> received_;
  std::vector<Open> blocks_;
};

void Rename(std::vector<Step>& steps, const std::vector<uint32_t>& names) {
  for (Step& step : steps) {
    for (Binding& binding : step.bindings) {
      if (binding.slot) binding.index = names[binding.index];
    }
    if (step.scratch) step.scratch = names[*step.scratch];
    if (step.count) step.count = names[*step.count];
    Rename(step.steps, names);
  }
}

// Slots that are used, in the order in which they are; places them, and names them in the steps.
void PlaceSlots(const Graph& graph, const InPlace& in_place, const Lifetimes& lifetimes,
                Plan& plan) {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < graph.slots.size(); ++i) {
    if (lifetimes.IsUsed(i)) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return graph.slots[a].first < graph.slots[b].first;
  });
  std::vector<uint32_t> names(graph.slots.size());
  for (uint32_t i = 0; i < order.size(); ++i) names[order[i]] = i;
  std::vector<Allocation> allocations;
  std::vector<bool> taken(graph.slots.size());
  for (const uint32_t i : order) {
    const Slot& slot = graph.slots[i];
    Allocation allocation;
    allocation.bytes = *BytesOf(slot.type);
    allocation.first = slot.first;
    allocation.last = slot.last;
    for (const uint32_t other : in_place[i]) {
      const bool dies = graph.slots[other].last == slot.first &&
                        graph.slots[other].first < slot.first &&
                        graph.slot_blocks[other] == graph.slot_blocks[i];
      if (!dies || taken[other] || graph.shared_slots[i]) continue;
      allocation.in_place_of = names[other];
      taken[other] = true;
      break;
    }
    allocations.push_back(allocation);
  }
  plan.memory = PlanMemory(allocations);
  for (uint32_t i = 0; i < order.size(); ++i) {
    plan.slots.push_back(graph.slots[order[i]]);
    plan.slots.back().offset = plan.memory.offsets[i];
  }
  Rename(plan.steps, names);
}

// Step `number`, and what is in it.
void AddUses(const Step& step, size_t number, std::vector<LastUse>& uses) {
  for (const Step& inner : step.steps) AddUses(inner, number, uses);
  for (size_t i = 0; i < step.bindings.size(); ++i) {
    if (step.bindings[i].slot) continue;
    LastUse& use = uses[step.bindings[i].index];
    use.touched = number;
    if (step.program.buffers[i].access != Access::kRead) use.written = number;
  }
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const Program& program) {
  ASSIGN_OR_RETURN(Graph graph, MakeGraph(program));
  Assembler assembler(graph);
  Plan plan;
  plan.steps = assembler.Run();
  Lifetimes lifetimes(graph);
  lifetimes.Run(plan.steps);
  PlaceSlots(graph, assembler.in_place(), lifetimes, plan);
  if (plan.memory.bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
                 "plan a program: the bytes that its values take overflow");
  }
  plan.numerics = program.numerics;
  plan.buffers = program.buffers;
  return plan;
}

absl::Status CheckFits(const Plan& plan, uint64_t besides, uint64_t available,
                       absl::string_view space) {
  const uint64_t asked = SaturatingAdd(plan.memory.bytes, besides);
  if (asked <= available) return absl::OkStatus();
  std::string text = absl::StrCat("plan a program in ", space, ": it asks for ", asked, " bytes, ",
                                  available, " are available; ", besides, " are scratch");
  if (!plan.memory.holders.empty()) {
    absl::StrAppend(&text, "; the largest values at step ", plan.memory.peak_step, " are");
  }
  const char* separator = " ";
  for (const size_t holder : plan.memory.holders) {
    const Slot& slot = plan.slots[holder];
    absl::StrAppend(&text, separator, "'", slot.label, "' ", ToString(slot.type), " of ",
                    *BytesOf(slot.type), " bytes");
    separator = ", ";
  }
  return Error(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory, text);
}

std::vector<LastUse> LastUses(const Plan& plan) {
  std::vector<LastUse> uses(plan.buffers.size());
  for (size_t i = 0; i < plan.steps.size(); ++i) AddUses(plan.steps[i], i, uses);
  return uses;
}

Cost CostOf(const Step& step) {
  if (step.kind != StepKind::kRepeat) return CostOf(step.program);
  Cost total;
  const auto trips = static_cast<uint64_t>(step.trips);
  for (const Step& inner : step.steps) {
    const Cost cost = CostOf(inner);
    for (const auto member :
         {&Cost::flops, &Cost::transcendentals, &Cost::bytes_read, &Cost::bytes_written,
          &Cost::bytes_sent, &Cost::bytes_received, &Cost::steps}) {
      total.*member = SaturatingAdd(total.*member, SaturatingMultiply(cost.*member, trips));
    }
  }
  return total;
}

}  // namespace ferry::compute
