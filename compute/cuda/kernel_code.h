// SPDX-License-Identifier: Apache-2.0
// A kernel of a plan as CUDA C++ (kernels/ferry.cuh is what it includes), and how it is launched.
// Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compute/program/program.h"

namespace ferry::compute {

// What is passed for a parameter, in the order of the parameters.
struct KernelArgument {
  enum class Kind : uint8_t { kBuffer, kScratch, kNumber };
  Kind kind = Kind::kNumber;
  uint32_t index = 0;  // which buffer of the kernel's program, or of KernelCode::scratch
  int64_t value = 0;   // bytes after its begin; or the number
  uint32_t bytes = 8;  // that the parameter has
};

struct KernelLaunch {
  // Equal for all that is the same but for names and for what is an argument. Its one kernel is
  // called kEntryPlace, to be replaced.
  std::string source;
  std::vector<KernelArgument> arguments;
  uint64_t blocks = 0;
  uint32_t threads = 0;
};
inline constexpr absl::string_view kEntryPlace = "KERNEL_NAME";

// One after the other.
struct KernelCode {
  std::vector<KernelLaunch> launches;  // none: nothing is to be done
  std::vector<uint64_t> scratch;       // bytes
  // Threads read what belongs to others: memory that is read is none that is written.
  bool reads_neighbours = false;
  bool multiplies = false;  // matrices
};

// What CUDA allows in any version that Ferry works with.
inline constexpr uint64_t kMaxArgumentBytes = 4096;
inline constexpr uint64_t kMaxBlocks = (uint64_t{1} << 31) - 1;

// How code is generated; what it says is in the source.
struct CodeOptions {
  int most_elements = 16;  // of a thread's vector
  int most_vectors = 4;    // that a thread reads before it computes
};

// The code of a step's program: a kernel, or a product of which the factors are in memory.
// `alignments`: of the memory that each of its buffers is bound to, powers of two.
// RESOURCE_EXHAUSTED: there are more elements than a launch takes.
absl::StatusOr<KernelCode> WriteKernel(const Program& program,
                                       absl::Span<const uint32_t> alignments,
                                       const CodeOptions& options = {});

}  // namespace ferry::compute
