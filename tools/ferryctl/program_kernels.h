// SPDX-License-Identifier: Apache-2.0
// What the kernels of a plan come to when they are compiled: for whoever writes a program, and to
// fill a directory of compiled kernels. Needs NVRTC, no GPU and no daemon. Single-threaded.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compute/cuda/gpu_plan.h"

namespace ferry::tools {

struct CompileSettings {
  std::string cache;  // a directory that is made if it is missing; empty: none
  std::string nvrtc;  // the library; empty: the first that there is
};

// A line a kernel: registers of a thread, bytes of it that do not fit them, bytes of the machine
// code, and where that is from. What is wrong with the cache is said on stderr.
absl::StatusOr<std::string> CompiledKernelsText(const compute::GpuPlan& plan,
                                                const CompileSettings& settings);

}  // namespace ferry::tools
