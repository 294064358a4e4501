// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/run/gpu_program.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/cuda/run/product_plan.h"

namespace ferry::compute {

namespace {

// Whether a library could multiply for the program.
bool HasProducts(const Program& program) {
  return std::any_of(program.nodes.begin(), program.nodes.end(), [](const Node& node) {
    return node.op == Op::kDotGeneral || node.op == Op::kBlockScaledDot;
  });
}

GpuOptions OptionsOf(bool first_tier, bool library_products) {
  GpuOptions options;
  options.buffer_alignment = GpuProgram::kBufferAlignment;
  options.native_blocks = false;
  options.library_products = library_products;
  options.first_tier = first_tier;
  return options;
}

// The kernels of the first tier that may stand for each kernel, and whether all of its launches
// have one.
struct FirstTiers {
  std::vector<std::vector<uint32_t>> of;  // by kernel
  std::vector<bool> lacks;                // by kernel

  explicit FirstTiers(const GpuPlan& plan)
      : of(plan.kernels.size()), lacks(plan.kernels.size(), false) {
    Look(plan.commands);
  }
  void Look(const std::vector<GpuCommand>& commands) {
    for (const GpuCommand& command : commands) {
      Look(command.body);
      if (command.kind != GpuCommand::Kind::kLaunch) continue;
      if (command.first) of[command.kernel].push_back(command.first->kernel);
      if (!command.first) lacks[command.kernel] = true;
    }
  }
};

}  // namespace

absl::StatusOr<GpuPlan> GpuProgram::Plan(const Program& program, const GpuArch& arch,
                                         bool first_tier, bool library_products) {
  return MakeGpuPlan(program, arch, OptionsOf(first_tier, library_products));
}

bool GpuProgram::full() const {
  return std::all_of(awaited_.begin(), awaited_.end(),
                     [](const StoredKernel* kernel) { return kernel->code() != nullptr; });
}

uint32_t GpuProgram::waiting() const {
  return static_cast<uint32_t>(std::count_if(
      awaited_.begin(), awaited_.end(),
      [](const StoredKernel* kernel) { return kernel->code() == nullptr && !kernel->failed(); }));
}

absl::StatusOr<GpuProgram> GpuProgram::Make(const Program& program, const GpuArch& arch,
                                            KernelStore& store, GpuMultiplier* multiplier) {
  // The library is large: it is opened if it is needed.
  const bool asks = multiplier != nullptr && HasProducts(program);
  const auto plan = [&](bool first_tier) {
    const GpuOptions options = OptionsOf(first_tier, false);
    return asks ? PlanProducts(program, arch, options, *multiplier)
                : PlanWithoutLibrary(program, arch, options);
  };
  ASSIGN_OR_RETURN(ProductPlan planned, plan(false));
  const auto is_known = [&](const GpuKernel& kernel) {
    return store.Find(kernel, arch)->code() != nullptr;
  };
  if (store.tiers() &&
      !std::all_of(planned.plan.kernels.begin(), planned.plan.kernels.end(), is_known)) {
    ASSIGN_OR_RETURN(planned, plan(true));
  }
  GpuProgram made(std::move(planned.plan));
  made.multiplier_ = std::move(planned.multiplier);
  made.native_blocks_ = planned.native_blocks;
  RETURN_IF_ERROR(made.FindKernels(store));
  return made;
}

absl::Status GpuProgram::FindKernels(KernelStore& store) {
  const FirstTiers first(plan_);
  first_codes_.resize(plan_.first_kernels.size());
  has_first_.resize(plan_.kernels.size());
  for (uint32_t i = 0; i < plan_.kernels.size(); ++i) {
    const GpuKernel& kernel = plan_.kernels[i];
    codes_.push_back(store.Find(kernel, plan_.arch));
    if (codes_.back()->code() != nullptr) continue;
    const bool may = store.tiers() && !first.lacks[i] && !first.of[i].empty();
    const absl::Status status = Compile(i, may ? first.of[i] : std::vector<uint32_t>(), store);
    if (!status.ok()) return Annotate(status, absl::StrCat("kernel ", kernel.name));
  }
  return absl::OkStatus();
}

absl::Status GpuProgram::Compile(uint32_t kernel, const std::vector<uint32_t>& first,
                                 KernelStore& store) {
  if (!first.empty() && CompileFirst(first, store).ok()) {
    has_first_[kernel] = true;
    awaited_.push_back(codes_[kernel]);
    return store.Later(plan_.kernels[kernel], plan_.arch);
  }
  ++compiled_;
  return store.Get(plan_.kernels[kernel], plan_.arch).status();
}

absl::Status GpuProgram::CompileFirst(const std::vector<uint32_t>& first, KernelStore& store) {
  for (const uint32_t kernel : first) {
    if (first_codes_[kernel] != nullptr) continue;
    ASSIGN_OR_RETURN(const KernelStore::Got got,
                     store.Get(plan_.first_kernels[kernel], plan_.arch, Tier::kFirst));
    first_codes_[kernel] = got.kernel;
    used_first_.push_back(got.kernel);
    compiled_ += got.from == KernelStore::From::kCompiler ? 1 : 0;
  }
  return absl::OkStatus();
}

GpuProgram::Launch GpuProgram::LaunchOf(const GpuCommand& command, bool full) const {
  if (full || !has_first_[command.kernel]) {
    return {codes_[command.kernel]->code(), command.blocks, command.threads, command.arguments};
  }
  const GpuLaunch& first = *command.first;
  return {first_codes_[first.kernel], first.blocks, first.threads, first.arguments};
}

absl::Span<const GpuCommand> GpuProgram::CommandsOf(size_t begin, size_t end) const {
  // Numbers of steps also count those within repeats.
  const std::vector<Step>& steps = plan_.plan.steps;
  const auto at = [&](size_t step) {
    if (step == steps.size()) return plan_.commands.end();
    return std::lower_bound(
        plan_.commands.begin(), plan_.commands.end(), steps[step].number,
        [](const GpuCommand& command, uint32_t number) { return command.step < number; });
  };
  const auto first = at(begin);
  const auto last = at(end);
  return absl::MakeConstSpan(plan_.commands)
      .subspan(static_cast<size_t>(first - plan_.commands.begin()),
               static_cast<size_t>(last - first));
}

}  // namespace ferry::compute
