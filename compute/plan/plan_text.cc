// SPDX-License-Identifier: Apache-2.0
// Plans for people, and for golden tests: everything that a plan has, in a stable order.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "compute/plan/plan.h"
#include "compute/plan/transfers.h"
#include "compute/program/text.h"

namespace ferry::compute {
namespace {

std::string NameOf(const Plan& plan, Binding binding) {
  return binding.slot ? absl::StrCat("#", binding.index)
                      : absl::StrCat("@", plan.buffers[binding.index].name);
}

// What a step reads or writes: "@x f32[4], #0 f32[4]", each once.
std::string Operands(const Plan& plan, const Step& step, bool writes) {
  std::vector<std::string> parts;
  for (const Node& node : step.program.nodes) {
    for (const BufferRange& range : RangesOf(step.program, node)) {
      if (writes ? !range.writes : !range.reads) continue;
      std::string text = NameOf(plan, step.bindings[range.buffer]);
      if (node.op == Op::kCopy || node.op == Op::kDeltaApply) {
        absl::StrAppend(&text, " ", range.end - range.begin, " bytes");
      } else {
        const ValueId value = node.op == Op::kInput ? node.first_result : node.operands[0];
        absl::StrAppend(&text, " ", ToString(step.program.types[value]));
      }
      if (std::find(parts.begin(), parts.end(), text) == parts.end()) parts.push_back(text);
    }
  }
  return absl::StrJoin(parts, ", ");
}

std::string CostText(const Cost& cost) {
  std::string text;
  const std::pair<const char*, uint64_t> numbers[] = {
      {"flops", cost.flops},     {"transcendentals", cost.transcendentals},
      {"read", cost.bytes_read}, {"written", cost.bytes_written},
      {"sent", cost.bytes_sent}, {"received", cost.bytes_received},
  };
  for (const auto& [name, number] : numbers) {
    if (number > 0) absl::StrAppend(&text, " ", name, "=", number);
  }
  return text;
}

// To or from whom, and under which key; "" if the step is no transfer.
std::string TransferText(const Step& step) {
  const std::optional<PlanTransfer> transfer = TransferOf(step);
  if (!transfer) return "";
  return absl::StrCat(transfer->device
                          ? absl::StrCat(" device=", *transfer->device)
                          : absl::StrCat(" peer=\"", absl::CEscape(transfer->peer), "\""),
                      " key=\"", absl::CEscape(transfer->key), "\"");
}

std::string Line(const Plan& plan, const Step& step) {
  std::string text = absl::StrCat(step.number, " ", kStepNames[static_cast<size_t>(step.kind)],
                                  " \"", absl::CEscape(step.label), "\"");
  if (step.kind == StepKind::kRepeat) {
    absl::StrAppend(&text, " trips=", step.trips);
    if (step.count) absl::StrAppend(&text, " count=#", *step.count);
  } else {
    const std::string reads = Operands(plan, step, false);
    const std::string writes = Operands(plan, step, true);
    absl::StrAppend(&text, reads.empty() ? "" : " ", reads, writes.empty() ? "" : " -> ", writes);
  }
  if (step.kind == StepKind::kProduct) {
    absl::StrAppend(&text, " accumulation=",
                    kAccumulationNames[static_cast<size_t>(plan.numerics.accumulation)]);
    for (const Binding& binding : step.bindings) {
      const bool constant = !binding.slot && plan.buffers[binding.index].constant;
      if (constant) absl::StrAppend(&text, " constant=", NameOf(plan, binding));
    }
  }
  absl::StrAppend(&text, TransferText(step));
  if (step.scratch) absl::StrAppend(&text, " scratch=#", *step.scratch);
  absl::StrAppend(&text, CostText(CostOf(step)));
  if (!step.after.empty()) absl::StrAppend(&text, " after ", absl::StrJoin(step.after, ","));
  return text;
}

void AppendSteps(const Plan& plan, const std::vector<Step>& steps, bool kernels, size_t indent,
                 std::string& text) {
  const std::string margin(indent, ' ');
  for (const Step& step : steps) {
    absl::StrAppend(&text, margin, Line(plan, step), "\n");
    AppendSteps(plan, step.steps, kernels, indent + 2, text);
    if (!kernels || step.kind == StepKind::kRepeat) continue;
    const std::string program = Print(step.program);
    for (const absl::string_view line : absl::StrSplit(program, '\n', absl::SkipEmpty())) {
      absl::StrAppend(&text, margin, "  | ", line, "\n");
    }
  }
}

Cost Total(const Plan& plan) {
  Step all;
  all.kind = StepKind::kRepeat;
  all.trips = 1;
  all.steps = plan.steps;
  return CostOf(all);
}

// As a string of the picture; lines stay lines.
std::string Quoted(absl::string_view text) {
  return absl::StrCat(
      "\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
}

// The order of steps: data flows through memory, which does not say who comes first. A repeat is
// its cluster, at whose point the edge begins or ends.
void AppendOrder(const std::vector<Step>& steps, std::string& text) {
  std::set<size_t> repeats;
  for (const Step& step : steps) {
    if (step.kind == StepKind::kRepeat) repeats.insert(step.number);
  }
  for (const Step& step : steps) {
    for (const size_t before : step.after) {
      absl::StrAppend(&text, "s", before, " -> s", step.number, " [style=dashed");
      if (repeats.count(before) != 0) absl::StrAppend(&text, ",ltail=cluster_s", before);
      if (repeats.count(step.number) != 0) absl::StrAppend(&text, ",lhead=cluster_s", step.number);
      absl::StrAppend(&text, "];\n");
    }
  }
}

void AppendNodes(const Plan& plan, const std::vector<Step>& steps, std::set<std::string>& memory,
                 std::string& text) {
  for (const Step& step : steps) {
    const std::string name = absl::StrCat("s", step.number);
    if (step.kind == StepKind::kRepeat) {
      absl::StrAppend(&text, "subgraph cluster_", name,
                      " {\nlabel=", Quoted(absl::StrCat(step.label, ", ", step.trips, " times")),
                      ";\n", name, " [shape=point];\n");
      AppendNodes(plan, step.steps, memory, text);
      absl::StrAppend(&text, "}\n");
      continue;
    }
    absl::StrAppend(
        &text, name, " [shape=box,label=",
        Quoted(absl::StrCat(step.number, " ", kStepNames[static_cast<size_t>(step.kind)], " ",
                            absl::CEscape(step.label), TransferText(step),
                            absl::StrReplaceAll(CostText(CostOf(step)), {{" ", "\n"}}))),
        "];\n");
    std::set<std::string> edges;
    for (const Node& node : step.program.nodes) {
      for (const BufferRange& range : RangesOf(step.program, node)) {
        const std::string at = Quoted(NameOf(plan, step.bindings[range.buffer]));
        memory.insert(at);
        if (range.reads) edges.insert(absl::StrCat(at, " -> ", name, ";\n"));
        if (range.writes) edges.insert(absl::StrCat(name, " -> ", at, ";\n"));
      }
    }
    for (const std::string& edge : edges) absl::StrAppend(&text, edge);
  }
  AppendOrder(steps, text);
}

}  // namespace

std::string ToText(const Plan& plan, bool kernels) {
  std::string text = "plan 1\n";
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    absl::StrAppend(&text, "slot #", i, " ", ToString(slot.type), " at ", slot.offset, " of ",
                    *BytesOf(slot.type), " bytes, steps ", slot.first, " to ", slot.last, " \"",
                    absl::CEscape(slot.label), "\"\n");
  }
  AppendSteps(plan, plan.steps, kernels, 0, text);
  absl::StrAppend(&text, "total", CostText(Total(plan)), "\narena ", plan.memory.bytes,
                  " bytes; most at step ", plan.memory.peak_step, ": ", plan.memory.peak_bytes,
                  " bytes");
  const char* separator = " in ";
  for (const size_t holder : plan.memory.holders) {
    absl::StrAppend(&text, separator, "#", holder, " \"", absl::CEscape(plan.slots[holder].label),
                    "\"");
    separator = ", ";
  }
  return text + "\n";
}

std::string ToDot(const Plan& plan) {
  std::string text = "digraph plan {\nrankdir=LR;\ncompound=true;\n";
  std::set<std::string> memory;
  AppendNodes(plan, plan.steps, memory, text);
  for (const std::string& name : memory) {
    absl::StrAppend(&text, name, " [shape=", name[1] == '#' ? "ellipse" : "cylinder", "];\n");
  }
  return text + "}\n";
}

}  // namespace ferry::compute
