// SPDX-License-Identifier: Apache-2.0
// A program made ready to run on GPUs of one architecture: its plan, and the machine code of each
// kernel, which is the KernelStore's and must outlive the program. Where the store has tiers, a
// kernel that nobody has compiled before may still be without its full code: its first tier runs
// until that is there. Immutable but for that; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/cuda/compile/kernel_store.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/gpu_plan.h"
#include "compute/cuda/run/gpu_multiplier.h"
#include "compute/program/program.h"

namespace ferry::compute {

class GpuProgram {
 public:
  // The alignment of the memory that buffers are bound to, in bytes.
  static constexpr uint32_t kBufferAlignment = 16;

  // Plans a program that Verify accepts, and has its kernels compiled, which may take seconds. Its
  // products are made by the library of `multiplier` if that is there and has them, else by our own
  // kernels, as all are if `multiplier` is null. Errors: as MakeGpuPlan, GpuMultiplier::Ask and
  // KernelStore::Get.
  static absl::StatusOr<GpuProgram> Make(const Program& program, const GpuArch& arch,
                                         KernelStore& store, GpuMultiplier* multiplier = nullptr);

  // The plan that Make makes where there are no tiers and no library.
  static absl::StatusOr<GpuPlan> Plan(const Program& program, const GpuArch& arch,
                                      bool first_tier = false, bool library_products = false);

  const GpuPlan& plan() const { return plan_; }
  uint64_t scratch_bytes() const { return plan_.scratch_bytes; }
  // The commands of the plan's steps from `begin` to before `end`.
  absl::Span<const GpuCommand> CommandsOf(size_t begin, size_t end) const;

  // Whether all kernels have their full code. Once true it stays so.
  bool full() const;
  // How many kernels are still compiled: not those that have failed.
  uint32_t waiting() const;
  struct Launch {
    const CompiledKernel* code = nullptr;
    uint64_t blocks = 0;
    uint32_t threads = 0;
    absl::Span<const GpuArgument> arguments;
  };
  // How a launch of the plan is done by a run that is `full`, as full() has said before, or is not.
  Launch LaunchOf(const GpuCommand& command, bool full) const;
  // The code of the first tiers that a run which is not full launches.
  const std::vector<const CompiledKernel*>& first_codes() const { return used_first_; }

  // Who multiplies matrices, as ProductPlan::multiplier.
  const std::string& multiplier() const { return multiplier_; }
  // Whether tensor cores take block scales. Then the program is for the GPU of the multiplier that
  // it was made with, and no other.
  bool native_blocks() const { return native_blocks_; }
  // How many of the kernels were compiled for this program, of either tier, not found.
  int compiled() const { return compiled_; }

 private:
  explicit GpuProgram(GpuPlan plan) : plan_(std::move(plan)) {}
  absl::Status FindKernels(KernelStore& store);
  // Has the kernel compiled, or, where `first` are kernels that may stand for it in each of its
  // launches, these instead, and the kernel itself later.
  absl::Status Compile(uint32_t kernel, const std::vector<uint32_t>& first, KernelStore& store);
  absl::Status CompileFirst(const std::vector<uint32_t>& first, KernelStore& store);

  GpuPlan plan_;
  std::vector<const StoredKernel*> codes_;  // by kernel of the plan
  std::vector<bool> has_first_;             // by kernel of the plan: it was not there at first
  std::vector<const CompiledKernel*> first_codes_;  // by first kernel of the plan; null: not needed
  std::vector<const CompiledKernel*> used_first_;   // those that are not null
  std::vector<const StoredKernel*> awaited_;        // the kernels that were not there at first
  std::string multiplier_;
  bool native_blocks_ = false;
  int compiled_ = 0;
};

}  // namespace ferry::compute
