// SPDX-License-Identifier: Apache-2.0
// Programs whose kernels a package brings: casts, sums, MXFP8, checksums, deltas, softmax and
// RMSNorm. A kernel serves all sizes of one structure, so each program stands for all of its kind.
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compute/cuda/compile/compile_child.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/program/program.h"

namespace ferry::compute {

struct CommonProgram {
  std::string name;
  Program program;  // Verify accepts it; simplified
};
std::vector<CommonProgram> CommonPrograms();

// Compiles the kernels of all CommonPrograms for `archs` into `directory`, which is made if it is
// missing, as packaged_kernels.h says. Of what is there already these kernels stay, and all else is
// removed. Errors: as CompileChild::Compile and CubinCache.
absl::Status PackCommonKernels(const std::string& directory, const CompileChild::Options& compiler,
                               absl::Span<const GpuArch> archs);

}  // namespace ferry::compute
