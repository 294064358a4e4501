// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/program_kernels.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "compute/cuda/compile/kernel_store.h"

namespace ferry::tools {
namespace {

const char* Word(compute::KernelStore::From from) {
  switch (from) {
    case compute::KernelStore::From::kMemory:
      return "the same as one before";
    case compute::KernelStore::From::kDisk:
      return "read";
    case compute::KernelStore::From::kCompiler:
      return "compiled";
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> CompiledKernelsText(const compute::GpuPlan& plan,
                                                const CompileSettings& settings) {
  compute::KernelStore::Options options;
  options.compiler.program = compute::FindCompiler();
  options.compiler.nvrtc = settings.nvrtc;
  options.cache = settings.cache;
  if (options.compiler.program.empty()) {
    return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
                 "compile kernels: ferry-compile is neither beside ferryctl nor in "
                 "../libexec/ferry, where it is installed");
  }
  compute::KernelStore store(options);
  std::string text = absl::StrCat("kernels ", plan.kernels.size(), " ", plan.arch.name, "\n");
  for (const compute::GpuKernel& kernel : plan.kernels) {
    ASSIGN_OR_RETURN(const compute::KernelStore::Got got, store.Get(kernel, plan.arch));
    absl::StrAppend(
        &text, absl::StrFormat("%s registers=%d spilled=%d bytes=%d %s, %.1f ms\n", kernel.name,
                               got.kernel->registers, got.kernel->spilled, got.kernel->cubin.size(),
                               Word(got.from), absl::ToDoubleMilliseconds(got.took)));
  }
  for (const std::string& warning : store.warnings()) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }
  return text;
}

}  // namespace ferry::tools
