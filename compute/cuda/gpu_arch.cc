// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/gpu_arch.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace ferry::compute {

absl::StatusOr<GpuArch> GpuArchOf(int major, int minor) {
  const std::string name = absl::StrCat("sm_", major, minor, "a");
  if (absl::StatusOr<GpuArch> known = GpuArchOf(name); known.ok()) return known;
  return Error(
      absl::StatusCode::kUnimplemented, Reason::kFieldInvalid,
      absl::StrCat("programs do not run on GPUs of compute capability ", major, ".", minor));
}

absl::StatusOr<GpuArch> GpuArchOf(absl::string_view name) {
  std::vector<absl::string_view> names;
  for (const GpuArch& arch : kGpuArchs) {
    if (arch.name == name) return arch;
    names.push_back(arch.name);
  }
  return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
               absl::StrCat("plan for a GPU: no architecture '", name, "' is known; known are ",
                            absl::StrJoin(names, ", ")));
}

}  // namespace ferry::compute
