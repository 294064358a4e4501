// SPDX-License-Identifier: Apache-2.0
// What a daemon and `ferry-compile` say to each other over a stream: frames, each 8 bytes of its
// payload's length (little-endian) and the payload. The child begins with a greeting; then each
// request has one answer, in order. Neither end believes a length that the other one says: a frame
// has at most kMostFrame bytes. Pure functions of plain data.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compute/cuda/kernel_compiler.h"

namespace ferry::compute {

inline constexpr uint64_t kMostFrame = uint64_t{64} << 20;
inline constexpr size_t kFrameHeader = 8;

// With its header.
std::string Framed(absl::string_view payload);
// The bytes of the payload that a frame with this header has. INTERNAL if that is too many.
absl::StatusOr<uint64_t> PayloadOf(absl::string_view header);

struct CompileRequest {
  std::string arch;  // a name of kGpuArchs
  std::string source;
};
std::string Encode(const CompileRequest& request);
absl::StatusOr<CompileRequest> DecodeRequest(absl::string_view payload);

// The version of NVRTC, or why there is none.
std::string EncodeGreeting(const absl::StatusOr<std::string>& version);
absl::StatusOr<std::string> DecodeGreeting(absl::string_view payload);

// The kernel, or why there is none.
std::string EncodeAnswer(const absl::StatusOr<CompiledKernel>& kernel);
absl::StatusOr<CompiledKernel> DecodeAnswer(absl::string_view payload);

}  // namespace ferry::compute
