// SPDX-License-Identifier: Apache-2.0
// What a daemon and `ferry-compile` say to each other over a stream. A frame is 8 bytes with its
// payload's length (little-endian), then the payload. The child begins with a greeting. Then each
// request has one answer, in order. Neither side believes a length that the other one says: a
// payload has at most kMostFrame bytes. Pure functions of plain data.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compute/cuda/kernel_compiler.h"

namespace ferry::compute {

inline constexpr uint64_t kMostFrame = uint64_t{64} << 20;
inline constexpr size_t kFrameHeader = 8;

// The payload with a frame's header before it.
std::string Framed(absl::string_view payload);
// The payload's length that a frame's header says. INTERNAL if it is too large.
absl::StatusOr<uint64_t> PayloadOf(absl::string_view header);

struct CompileRequest {
  std::string arch;  // a name in kGpuArchs
  std::string source;
  Tier tier = Tier::kFull;
};
std::string Encode(const CompileRequest& request);
absl::StatusOr<CompileRequest> DecodeRequest(absl::string_view payload);

// The version of NVRTC, or why there is no NVRTC.
std::string EncodeGreeting(const absl::StatusOr<std::string>& version);
absl::StatusOr<std::string> DecodeGreeting(absl::string_view payload);

// The compiled kernel, or why there is none.
std::string EncodeAnswer(const absl::StatusOr<CompiledKernel>& kernel);
absl::StatusOr<CompiledKernel> DecodeAnswer(absl::string_view payload);

}  // namespace ferry::compute
