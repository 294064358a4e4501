// SPDX-License-Identifier: Apache-2.0
// A program made ready to run on GPUs of one architecture: its plan, and the machine code of each
// kernel, which is the KernelStore's and must outlive the program. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/cuda/compile/kernel_store.h"
#include "compute/cuda/cublaslt_library.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/gpu_plan.h"
#include "compute/program/program.h"

namespace ferry::compute {

class GpuProgram {
 public:
  // The alignment of the memory that buffers are bound to, in bytes.
  static constexpr uint32_t kBufferAlignment = 16;

  // Plans a program that Verify accepts, and has its kernels compiled, which may take seconds. Its
  // products are made by `library` if that is there and has them, else by our own kernels. Errors:
  // as MakeGpuPlan and KernelStore::Get.
  static absl::StatusOr<GpuProgram> Make(const Program& program, const GpuArch& arch,
                                         KernelStore& store,
                                         const CublasLtLibrary* library = nullptr);

  const GpuPlan& plan() const { return plan_; }
  uint64_t scratch_bytes() const { return plan_.scratch_bytes; }
  // The commands of the plan's steps from `begin` to before `end`.
  absl::Span<const GpuCommand> CommandsOf(size_t begin, size_t end) const;
  const CompiledKernel& code(uint32_t kernel) const { return *codes_[kernel]; }
  // Who multiplies matrices: "cuBLASLt 13.1.0", or "our own kernels (WHY)". Empty if nobody does.
  const std::string& multiplier() const { return multiplier_; }
  // How many of the kernels were compiled for this program, not found.
  int compiled() const { return compiled_; }

 private:
  explicit GpuProgram(GpuPlan plan) : plan_(std::move(plan)) {}

  GpuPlan plan_;
  std::vector<const CompiledKernel*> codes_;  // by kernel of the plan
  std::string multiplier_;
  int compiled_ = 0;
};

}  // namespace ferry::compute
