// SPDX-License-Identifier: Apache-2.0
// ferry-pack-kernels DIRECTORY COMPILER [LIBRARY]: compiles the kernels that a package brings into
// the directory, by the ferry-compile COMPILER and the NVRTC LIBRARY. The build starts it.
#include <cstdio>
#include <string>

#include "compute/cuda/run/common_programs.h"

int main(int count, char** words) {
  if (count < 3 || count > 4) {
    std::fputs("usage: ferry-pack-kernels DIRECTORY COMPILER [LIBRARY]\n", stderr);
    return 2;
  }
  ferry::compute::CompileChild::Options options;
  options.program = words[2];
  if (count == 4) options.nvrtc = words[3];
  // Hopper and Blackwell of data centres.
  const absl::Status packed = ferry::compute::PackCommonKernels(
      words[1], options, absl::MakeConstSpan(ferry::compute::kGpuArchs).first(2));
  if (packed.ok()) return 0;
  std::fprintf(stderr, "ferry-pack-kernels: %s\n", std::string(packed.message()).c_str());
  return 1;
}
