// SPDX-License-Identifier: Apache-2.0
// Compiles the kernels of a plan and describes the result: for whoever writes a program, and to
// fill a directory of compiled kernels. Needs NVRTC, but neither GPU nor daemon. Single-threaded.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compute/cuda/gpu_plan.h"

namespace ferry::tools {

struct CompileSettings {
  std::string cache;  // a directory, made if it is missing; empty: none
  std::string nvrtc;  // the library; empty: the first that is found
};

// One line for each kernel: registers of a thread, bytes of a thread that do not fit registers,
// bytes of machine code, and where the code came from. Problems of the cache are printed on stderr.
absl::StatusOr<std::string> CompiledKernelsText(const compute::GpuPlan& plan,
                                                const CompileSettings& settings);

}  // namespace ferry::tools
