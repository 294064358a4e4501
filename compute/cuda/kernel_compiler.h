// SPDX-License-Identifier: Apache-2.0
// Kernels by NVRTC: from source to machine code of one architecture, and the name of what is made,
// for a cache. Pure but for NVRTC; any thread.
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

// What kernels include, by name: kernels/ of this folder.
struct KernelHeader {
  std::string name;
  std::string text;
};
absl::Span<const KernelHeader> KernelHeaders();

// Of all kernels: nothing contracted, flushed or approximate, so that bits are those of
// docs/numerics.md.
std::vector<std::string> CompileOptions(const GpuArch& arch);

// 64 hexadecimal digits, SHA-256 of all that the machine code depends on: the source with
// kEntryPlace for the kernel's name (so that labels do not matter; what is passed as an argument is
// not in it), what it includes, the options with the architecture, NVRTC's version.
std::string KernelKey(absl::string_view source, absl::Span<const std::string> options,
                      absl::string_view nvrtc_version,
                      absl::Span<const KernelHeader> headers = KernelHeaders());
// The beginning of one of the source alone: what tells kernels of one label apart.
std::string SourceMark(absl::string_view source);

struct CompiledKernel {
  std::string cubin;
  int registers = 0;  // of a thread, the most of any kernel in it
  int spilled = 0;    // bytes of a thread that do not fit them
  std::string log;
};
// INTERNAL with the compiler's log if it does not compile: what is generated must.
absl::StatusOr<CompiledKernel> CompileKernel(const NvrtcApi& nvrtc, const std::string& source,
                                             const GpuArch& arch);

}  // namespace ferry::compute
