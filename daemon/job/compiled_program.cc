// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/compiled_program.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/status.h"
#include "compute/passes/passes.h"
#include "compute/plan/plan.h"
#include "compute/program/fingerprint.h"
#include "compute/program/text.h"
#include "compute/program/verify.h"

namespace ferry {
namespace {

absl::Status NoProgram(const std::string& text, Reason reason = Reason::kFieldInvalid) {
  return Error(absl::StatusCode::kInvalidArgument, reason, text);
}

// One status for all of `violations` (not empty), with the code and the reason of `status`.
CompileResult Refuse(const absl::Status& status, std::vector<Violation> violations) {
  const Violation& first = violations.front();
  CompileResult refused;
  refused.status = WithText(
      status, absl::StrCat("compile a program: ", violations.size(),
                           violations.size() == 1 ? " problem: " : " problems: ", first.field, ": ",
                           first.status.message()));
  refused.violations = std::move(violations);
  return refused;
}

CompileResult Refuse(const absl::Status& why) {
  CompileResult refused;
  refused.status = OfField(Annotate(why, "compile a program"), "source");
  return refused;
}

// The problems of a program, each with its place in what was sent.
CompileResult CheckProgram(const compute::Program& program) {
  const std::vector<compute::Problem> problems = compute::Verify(program);
  if (problems.empty()) return {};
  std::vector<Violation> violations;
  for (const compute::Problem& problem : problems) {
    const std::string field =
        problem.op < 0 ? "program" : absl::StrCat("program.nodes[", problem.op, "]");
    violations.push_back({field, NoProgram(compute::ToString(program, problem), problem.reason)});
  }
  return Refuse(compute::ToStatus(program, problems), std::move(violations));
}

std::vector<uint32_t> TypesOf(const compute::Program& program) {
  std::vector<uint32_t> types(program.buffers.size());
  for (const compute::Node& node : program.nodes) {
    // These take bytes, not elements.
    if (node.op == compute::Op::kCopy || node.op == compute::Op::kDeltaApply) continue;
    for (const uint32_t buffer : node.buffers) {
      const compute::ValueId value =
          node.operands.empty() ? node.first_result : node.operands.front();
      types[buffer] |= uint32_t{1} << static_cast<uint32_t>(program.types[value].dtype);
    }
  }
  return types;
}

void RemoveLabels(std::vector<compute::Step>& steps) {
  for (compute::Step& step : steps) {
    step.label = std::string(compute::kStepNames[static_cast<size_t>(step.kind)]);
    RemoveLabels(step.steps);
  }
}

compute::Plan WithoutLabels(compute::Plan plan) {
  RemoveLabels(plan.steps);
  for (compute::Slot& slot : plan.slots) slot.label = "value";
  return plan;
}

// What is known of the steps of a GPU's plan beside what they cost, by the step's number; empty for
// a host device.
struct GpuSteps {
  absl::flat_hash_map<uint32_t, uint64_t> busy;   // compute::BusyThreadsOf
  absl::flat_hash_set<uint32_t> by_tensor_cores;  // compute::StepsOfTensorCores
  uint64_t tensor_speed = 1;                      // compute::GpuArch::tensor_speed

  // The work of a step. Flops of tensor cores count as less, since they take less time; those of
  // what is computed before and after the product, by our own kernels, do not.
  uint64_t WorkOf(const compute::Step& step) const {
    if (step.kind != compute::StepKind::kRepeat) {
      compute::Cost cost = compute::CostOf(step);
      if (!by_tensor_cores.contains(step.number)) return compute::WorkOf(cost);
      for (const compute::Node& node : step.program.nodes) {
        if (compute::InfoOf(node.op).cost.basis != compute::CostBasis::kContraction) continue;
        const uint64_t flops = compute::CostOf(step.program, node).flops;
        cost.flops -= flops - flops / tensor_speed;
      }
      return compute::WorkOf(cost);
    }
    uint64_t work = 0;
    for (const compute::Step& inner : step.steps) {
      work = compute::SaturatingAdd(work, WorkOf(inner));
    }
    return compute::SaturatingMultiply(work, static_cast<uint64_t>(step.trips));
  }
};

// The work of one run of the plan, or RESOURCE_EXHAUSTED if that is more than the limit.
absl::Status CheckWork(const compute::Plan& plan, const GpuSteps& gpu, uint64_t most,
                       CompiledProgram& made) {
  uint64_t& work = made.work;
  uint64_t moved = 0;
  for (const compute::Step& step : plan.steps) {
    const compute::Cost cost = compute::CostOf(step);
    made.work_by_step.push_back(gpu.WorkOf(step));
    work = compute::SaturatingAdd(work, made.work_by_step.back());
    moved =
        compute::SaturatingAdd(moved, compute::SaturatingAdd(cost.bytes_read, cost.bytes_written));
  }
  if (work <= most) return absl::OkStatus();
  return Error(
      absl::StatusCode::kResourceExhausted, Reason::kBatchTooLarge,
      absl::StrCat("a run of it asks for ", work - moved, " flops (a function such as tanh ",
                   "counts as ", compute::kBytesOfTranscendental,
                   gpu.by_tensor_cores.empty()
                       ? ""
                       : absl::StrCat(", ", gpu.tensor_speed, " flops of tensor cores count as 1"),
                   ") and ", moved, " bytes read and written, a job may have ", most,
                   " of both together (limits.job_flops); run it in parts"));
}

// RESOURCE_EXHAUSTED if a step would be one launch of a GPU, which nothing can divide or stop, and
// costs more than a launch may.
absl::Status CheckLaunches(const std::vector<compute::Step>& steps, const GpuSteps& gpu,
                           uint64_t most) {
  for (const compute::Step& step : steps) {
    if (step.kind == compute::StepKind::kRepeat) {
      RETURN_IF_ERROR(CheckLaunches(step.steps, gpu, most));
      continue;
    }
    const uint64_t work = gpu.WorkOf(step);
    const auto threads = gpu.busy.find(step.number);
    const bool is_narrow = threads != gpu.busy.end() && threads->second < compute::kThreadsOfGpu;
    const uint64_t counted = is_narrow ? compute::LaunchWorkOf(work, threads->second) : work;
    if (counted <= most) continue;
    const compute::Cost cost = compute::CostOf(step);
    const uint64_t moved = compute::SaturatingAdd(cost.bytes_read, cost.bytes_written);
    std::string how;
    if (is_narrow) {
      how = absl::StrCat(", by ", threads->second, threads->second == 1 ? " thread" : " threads",
                         ", which is as long as ", counted, " by a whole GPU");
    } else if (gpu.by_tensor_cores.contains(step.number)) {
      how = absl::StrCat(" (", gpu.tensor_speed, " flops of tensor cores count as 1)");
    }
    return Error(
        absl::StatusCode::kResourceExhausted, Reason::kBatchTooLarge,
        absl::StrCat("step ", step.number, " \"", step.label, "\" is one launch of a GPU, of ",
                     work - moved, " flops and ", moved, " bytes read and written, ", work,
                     " of both", how, "; a launch may have ", most,
                     " (limits.gpu_launch_flops); do it in parts"));
  }
  return absl::OkStatus();
}

// Has the program planned, and whatever else its target needs.
absl::Status MakeFor(const Target& target, const compute::Program& simplified,
                     const JobLimits& limits, CompiledProgram& made) {
  made.target = target.name();
  if (target.gpu) {
    ASSIGN_OR_RETURN(made.gpu, compute::GpuProgram::Make(simplified, *target.gpu, *target.kernels,
                                                         target.multiplier));
    // Only that GPU's library was tried for block scales.
    if (made.gpu->native_blocks()) made.target = target.own_name();
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(
      made.host, compute::HostProgram::Make(
                     simplified, {.threads = limits.threads, .launch_flops = limits.launch_flops}));
  return absl::OkStatus();
}

// How the target runs the plan, as the last line of the plan's text.
std::string HowItRuns(const CompiledProgram& made, const JobLimits& limits) {
  if (made.host) return absl::StrCat("threads ", limits.threads, "\n");
  const std::string& multiplier = made.gpu->multiplier();
  return absl::StrCat("gpu ", made.gpu->plan().arch.name, ", ", made.gpu->plan().kernels.size(),
                      " kernels", multiplier.empty() ? "" : ", products by ", multiplier, "\n");
}

CompileResult Make(const compute::Program& program, const JobLimits& limits, const Target& target) {
  auto made = std::make_shared<CompiledProgram>();
  const compute::Fingerprint fingerprint = compute::FingerprintOf(program);
  made->fingerprint.assign(fingerprint.begin(), fingerprint.end());
  if (target.barred != nullptr) {
    if (absl::Status may = target.barred->Check(made->fingerprint); !may.ok()) return Refuse(may);
  }
  compute::Program simplified = compute::Simplify(program);
  made->cost = compute::CostOf(simplified);
  if (absl::Status ready = MakeFor(target, simplified, limits, *made); !ready.ok()) {
    return Refuse(ready);
  }
  const compute::Plan& plan = made->steps();
  GpuSteps gpu;
  if (made->gpu) {
    const compute::GpuPlan& launches = made->gpu->plan();
    gpu = {compute::BusyThreadsOf(launches), compute::StepsOfTensorCores(launches),
           launches.arch.tensor_speed};
  }
  absl::Status may = CheckWork(plan, gpu, limits.flops, *made);
  if (may.ok() && made->gpu) may = CheckLaunches(plan.steps, gpu, limits.gpu_launch_flops);
  if (!may.ok()) return Refuse(may);
  const uint64_t besides = made->scratch_bytes() - plan.memory.bytes;
  if (absl::Status fits = compute::CheckFits(plan, besides, limits.bytes, "limits.job_bytes");
      !fits.ok()) {
    return Refuse(fits);
  }
  made->plan = compute::ToText(WithoutLabels(plan)) + HowItRuns(*made, limits);
  made->buffers = simplified.buffers;
  for (size_t i = 0; i < made->buffers.size(); ++i) made->by_name[made->buffers[i].name] = i;
  made->types = TypesOf(simplified);
  made->last_uses = compute::LastUses(plan);
  made->transfers = compute::TransfersOf(plan);
  made->sections = compute::SectionsOf(plan);
  made->ops = simplified.nodes.size();
  CompileResult result;
  result.plan = compute::ToText(plan) + HowItRuns(*made, limits);
  result.program = std::move(made);
  return result;
}

}  // namespace

uint64_t CompiledProgram::WorkLeft(const compute::HostProgram::Aside& aside) const {
  const double part = host ? host->DoneOfStep(aside) : 0;  // a GPU's run is put aside between steps
  const double done = part * static_cast<double>(work_by_step[aside.step]);
  uint64_t left =
      work_by_step[aside.step] - std::min(work_by_step[aside.step], static_cast<uint64_t>(done));
  for (size_t step = aside.step + 1; step < work_by_step.size(); ++step) {
    left = compute::SaturatingAdd(left, work_by_step[step]);
  }
  return std::max<uint64_t>(left, 1);
}

size_t CompiledProgram::FirstUnready(size_t section, const std::vector<bool>& over) const {
  const auto awaits = [&](const compute::Section& one) {
    return std::any_of(one.awaited.begin(), one.awaited.end(), [&](size_t i) { return !over[i]; });
  };
  const auto from = sections.begin() + static_cast<ptrdiff_t>(section);
  return static_cast<size_t>(std::find_if(from, sections.end(), awaits) - sections.begin());
}

CompileResult CompileProgram(const ProgramSource& source, const JobLimits& limits,
                             const Target& target) {
  if (const auto* program = std::get_if<compute::Program>(&source)) {
    CompileResult checked = CheckProgram(*program);
    return checked.status.ok() ? Make(*program, limits, target) : checked;
  }
  const std::string& text = std::get<std::string>(source);
  if (text.size() > compute::kMaxTextBytes) {
    return Refuse(NoProgram(absl::StrCat("its text has ", text.size(), " bytes, at most ",
                                         compute::kMaxTextBytes, " are read"),
                            Reason::kBatchTooLarge));
  }
  const compute::ParsedText parsed = compute::Parse(text);
  const std::vector<compute::TextProblem> problems = compute::CheckText(parsed);
  if (problems.empty()) return Make(parsed.program, limits, target);
  std::vector<Violation> violations;
  Reason reason = problems[0].reason;
  for (const compute::TextProblem& problem : problems) {
    const std::string place = compute::PlaceText(problem);
    violations.push_back({absl::StrCat("text", place.empty() ? "" : ":", place),
                          NoProgram(problem.text, problem.reason)});
    if (problem.reason != reason) reason = Reason::kFieldInvalid;
  }
  return Refuse(NoProgram("", reason), std::move(violations));
}

std::shared_ptr<const CompiledProgram> ProgramCache::Add(
    std::shared_ptr<const CompiledProgram> program) {
  home_.Check();
  if (std::shared_ptr<const CompiledProgram> known = Find(program->fingerprint, program->target)) {
    return known;
  }
  ops_ += program->ops;
  programs_.push_front(program);
  by_key_[{program->fingerprint, program->target}] = programs_.begin();
  while (programs_.size() > kMostPrograms || (ops_ > kMostOps && programs_.size() > 1)) {
    ops_ -= programs_.back()->ops;
    by_key_.erase({programs_.back()->fingerprint, programs_.back()->target});
    programs_.pop_back();
  }
  return program;
}

std::shared_ptr<const CompiledProgram> ProgramCache::Find(const std::string& fingerprint,
                                                          const std::string& target) {
  home_.Check();
  const auto found = by_key_.find({fingerprint, target});
  if (found == by_key_.end()) return nullptr;
  programs_.splice(programs_.begin(), programs_, found->second);
  return *found->second;
}

}  // namespace ferry
