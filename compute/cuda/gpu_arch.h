// SPDX-License-Identifier: Apache-2.0
// The GPUs that kernels are generated for. Targets are the architecture-specific ones ("a"): they
// have all instructions of the GPU and run on no other. Constants only.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ferry::compute {

struct GpuArch {
  absl::string_view name;
  bool block_scales = false;  // its tensor cores take block scales
  uint64_t workspace = 0;     // bytes of workspace for cuBLASLt
  // A product of factors of at most 16 bits, by tensor cores, is so many times as fast as a product
  // of f32 factors. It is the ratio of the peaks that data sheets give, rounded down to a power of
  // two, and at most 8.
  uint64_t tensor_speed = 1;
};

inline constexpr uint64_t kWorkspaceBytes = uint64_t{32} << 20;
inline constexpr GpuArch kGpuArchs[] = {
    {"sm_90a", false, kWorkspaceBytes, 8}, {"sm_100a", true, kWorkspaceBytes, 8},
    {"sm_103a", true, kWorkspaceBytes, 8}, {"sm_120a", true, kWorkspaceBytes, 2},
    {"sm_121a", true, kWorkspaceBytes, 2},
};

// The architecture of GPUs of this compute capability, such as 9 and 0. UNIMPLEMENTED/FIELD_INVALID
// for one that kernels are not generated for.
absl::StatusOr<GpuArch> GpuArchOf(int major, int minor);
// INVALID_ARGUMENT for an unknown name, with all names that there are.
absl::StatusOr<GpuArch> GpuArchOf(absl::string_view name);

}  // namespace ferry::compute
