// SPDX-License-Identifier: Apache-2.0
// The vendor table of NVRTC, CUDA's compiler as a library, found at run time: a machine without it
// compiles no kernels and says why. Constant after LoadNvrtc; any thread. Only this folder's .cc
// files and tests include it.
#pragma once

#include <nvrtc.h>

#include <string>

#include "absl/status/statusor.h"

namespace ferry::compute {

#define FERRY_NVRTC_FUNCTIONS(X) \
  X(nvrtcVersion)                \
  X(nvrtcGetErrorString)         \
  X(nvrtcCreateProgram)          \
  X(nvrtcDestroyProgram)         \
  X(nvrtcCompileProgram)         \
  X(nvrtcGetProgramLogSize)      \
  X(nvrtcGetProgramLog)          \
  X(nvrtcGetCUBINSize)           \
  X(nvrtcGetCUBIN)

struct NvrtcApi {
#define FERRY_NVRTC_MEMBER(name) decltype(&::name) name = nullptr;
  FERRY_NVRTC_FUNCTIONS(FERRY_NVRTC_MEMBER)
#undef FERRY_NVRTC_MEMBER
  std::string version;  // "13.0"
};

// Opens `library`, or, if it is empty, the first that there is of what CUDA installs. UNAVAILABLE/
// NOT_READY with what is missing.
absl::StatusOr<const NvrtcApi*> LoadNvrtc(const std::string& library = "");

}  // namespace ferry::compute
