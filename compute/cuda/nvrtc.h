// SPDX-License-Identifier: Apache-2.0
// The vendor table of NVRTC, CUDA's compiler as a library, found at run time: a machine without it
// compiles no kernels and says why. Constant after LoadNvrtc(); any thread. Only .cc files of this
// folder and tests include it.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace ferry::compute {

using NvrtcProgram = void*;
inline constexpr int kNvrtcSuccess = 0;
inline constexpr int kNvrtcInvalidOption = 5;

// Declared as in nvrtc.h of CUDA 12 and 13; a machine with only the driver's header lacks that
// file.
#define FERRY_NVRTC_FUNCTIONS(X)                                                                  \
  X(nvrtcVersion, int (*)(int* major, int* minor))                                                \
  X(nvrtcGetErrorString, const char* (*)(int result))                                             \
  X(nvrtcCreateProgram, int (*)(NvrtcProgram * program, const char* source, const char* name,     \
                                int headers, const char* const* texts, const char* const* names)) \
  X(nvrtcDestroyProgram, int (*)(NvrtcProgram * program))                                         \
  X(nvrtcCompileProgram, int (*)(NvrtcProgram program, int options, const char* const* texts))    \
  X(nvrtcGetProgramLogSize, int (*)(NvrtcProgram program, size_t * bytes))                        \
  X(nvrtcGetProgramLog, int (*)(NvrtcProgram program, char* log))                                 \
  X(nvrtcGetCUBINSize, int (*)(NvrtcProgram program, size_t * bytes))                             \
  X(nvrtcGetCUBIN, int (*)(NvrtcProgram program, char* cubin))

struct NvrtcApi {
#define FERRY_NVRTC_MEMBER(name, ...) decltype(static_cast<__VA_ARGS__>(nullptr)) name = nullptr;
  FERRY_NVRTC_FUNCTIONS(FERRY_NVRTC_MEMBER)
#undef FERRY_NVRTC_MEMBER
  std::string version;  // "13.0"
};

// Opens `library`; if that is empty, the first that exists of those that CUDA installs.
// UNAVAILABLE/NOT_READY says what is missing.
absl::StatusOr<const NvrtcApi*> LoadNvrtc(const std::string& library = "");

}  // namespace ferry::compute
