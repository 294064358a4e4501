// SPDX-License-Identifier: Apache-2.0
// Compiles kernels by NVRTC, from source to machine code for one architecture, and makes the name
// by which a cache knows the result. Pure but for NVRTC; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/nvrtc.h"

namespace ferry::compute {

// A file that kernels include by its name: the files of kernels/ in this folder.
struct KernelHeader {
  std::string name;
  std::string text;
};
absl::Span<const KernelHeader> KernelHeaders();
// A digest of the names and texts of headers.
std::string DigestOf(absl::Span<const KernelHeader> headers);
// Of KernelHeaders(), computed once.
const std::string& KernelHeadersDigest();

// How a kernel is compiled. The first tier is what runs until the full one is there: loops stay
// loops, and optimisations that take the compiler long are left out. Both give the same bits.
enum class Tier : uint8_t { kFull, kFirst };
inline constexpr absl::string_view kTierNames[] = {"full", "first"};

// The options of all kernels: nothing is contracted, flushed or approximate, so that results have
// the bits that docs/numerics.md says.
std::vector<std::string> CompileOptions(const GpuArch& arch, Tier tier = Tier::kFull);

// 64 hexadecimal digits: SHA-256 of all that the machine code depends on. That is the source with
// kEntryPlace for the kernel's name (so labels and arguments do not matter), the files that it
// includes by their digest, the options, which name the architecture, and NVRTC's version.
std::string KernelKey(absl::string_view source, absl::Span<const std::string> options,
                      absl::string_view nvrtc_version,
                      absl::string_view headers_digest = KernelHeadersDigest());
// The first digits of a digest of the source alone: tells kernels of one label apart.
std::string SourceMark(absl::string_view source);

struct CompiledKernel {
  std::string cubin;
  int registers = 0;  // registers of a thread: the most of any kernel in the cubin
  int spilled = 0;    // bytes of a thread that do not fit registers
  std::string log;
};
// INTERNAL with the compiler's log if the source does not compile: generated sources must.
absl::StatusOr<CompiledKernel> CompileKernel(const NvrtcApi& nvrtc, const std::string& source,
                                             const GpuArch& arch, Tier tier = Tier::kFull);

}  // namespace ferry::compute
