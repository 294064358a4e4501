// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/run/gpu_program.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/cuda/cublaslt.h"

namespace ferry::compute {

namespace {

// Whether a library could multiply for the program.
bool HasProducts(const Program& program) {
  return std::any_of(program.nodes.begin(), program.nodes.end(), [](const Node& node) {
    return node.op == Op::kDotGeneral || node.op == Op::kBlockScaledDot;
  });
}

bool CallsLibrary(const std::vector<GpuCommand>& commands) {
  return std::any_of(commands.begin(), commands.end(), [](const GpuCommand& command) {
    return command.kind == GpuCommand::Kind::kProduct || CallsLibrary(command.body);
  });
}

}  // namespace

absl::StatusOr<GpuProgram> GpuProgram::Make(const Program& program, const GpuArch& arch,
                                            KernelStore& store, const CublasLtLibrary* library) {
  GpuOptions options;
  options.buffer_alignment = kBufferAlignment;
  options.native_blocks = false;
  options.library_products = false;
  std::string multiplier;
  if (library != nullptr && HasProducts(program)) {  // it is large: opened if it is needed
    const absl::StatusOr<const CublasLtApi*> api = library->Get();
    options.library_products = api.ok();
    multiplier = api.ok() ? absl::StrCat("cuBLASLt ", (*api)->version)
                          : absl::StrCat("our own kernels (", api.status().message(), ")");
  }
  ASSIGN_OR_RETURN(GpuPlan plan, MakeGpuPlan(program, arch, options));
  GpuProgram made(std::move(plan));
  if (options.library_products && !CallsLibrary(made.plan_.commands)) {
    multiplier = "our own kernels (it has no such products)";
  }
  made.multiplier_ = std::move(multiplier);
  for (const GpuKernel& kernel : made.plan_.kernels) {
    absl::StatusOr<KernelStore::Got> got = store.Get(kernel, made.plan_.arch);
    if (!got.ok()) return Annotate(got.status(), absl::StrCat("kernel ", kernel.name));
    made.codes_.push_back(got->kernel);
    made.compiled_ += got->from == KernelStore::From::kCompiler ? 1 : 0;
  }
  return made;
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
