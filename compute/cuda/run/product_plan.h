// SPDX-License-Identifier: Apache-2.0
// Plans programs with products for one GPU, by what its library has: what the library refuses is
// made by our own kernels, and tensor cores take block scales only where the library has been tried
// for that. Functions of the thread that compiles programs.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/gpu_plan.h"
#include "compute/cuda/run/gpu_multiplier.h"
#include "compute/program/program.h"

namespace ferry::compute {

struct ProductPlan {
  GpuPlan plan;
  // Who multiplies, for people: "cuBLASLt 13.1.0" or "our own kernels (WHY)". The former may go on
  // with ", but in step 2 our own kernels (WHY)". Where the program allows native_block, it goes on
  // with ", block scales by tensor cores", which may be ", but not in step 3 (WHY)", or with
  // ", block scales dequantised (WHY)". Empty: nobody is asked to.
  std::string multiplier;
  bool native_blocks = false;  // whether tensor cores take block scales anywhere
};

// `options` say what else is wanted. Errors: as MakeGpuPlan, GpuMultiplier::Ask and CheckBlocks.
absl::StatusOr<ProductPlan> PlanProducts(const Program& program, const GpuArch& arch,
                                         GpuOptions options, GpuMultiplier& multiplier);
// Our own kernels multiply, and nothing is told.
absl::StatusOr<ProductPlan> PlanWithoutLibrary(const Program& program, const GpuArch& arch,
                                               GpuOptions options);

}  // namespace ferry::compute
