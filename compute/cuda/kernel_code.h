// SPDX-License-Identifier: Apache-2.0
// A kernel of a plan as CUDA C++, which includes kernels/ferry.cuh, and how it is launched. Plain
// data; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compute/program/program.h"

namespace ferry::compute {

// What is passed for one parameter. Arguments are in the order of the parameters that come after
// the first two, which are not a kernel's own: `u64* begun, u64 run`. A kernel whose `begun` is not
// null stores `run` there when it begins.
struct KernelArgument {
  enum class Kind : uint8_t { kBuffer, kScratch, kNumber };
  Kind kind = Kind::kNumber;
  uint32_t index = 0;  // of the buffer of the kernel's program, or in KernelCode::scratch
  int64_t value = 0;   // offset in bytes; or the number
  uint32_t bytes = 8;  // size of the parameter
};

struct KernelLaunch {
  // Equal for kernels that differ only in names and arguments. Its one kernel is called
  // kEntryPlace, which is to be replaced by a name.
  std::string source;
  std::vector<KernelArgument> arguments;
  uint64_t blocks = 0;
  uint32_t threads = 0;
  uint64_t busy = 0;  // threads, of all blocks together, that have something to do
};
inline constexpr absl::string_view kEntryPlace = "KERNEL_NAME";

// Launches that run one after the other.
struct KernelCode {
  std::vector<KernelLaunch> launches;  // empty: there is nothing to do
  std::vector<uint64_t> scratch;       // sizes in bytes
  // Threads read elements that other threads are for, so no memory that is read may be written.
  bool reads_neighbours = false;
  bool multiplies = false;  // multiplies matrices
};

// Bounds that hold in all versions of CUDA that Ferry works with.
inline constexpr uint64_t kMaxArgumentBytes = 4096;
inline constexpr uint64_t kBeginBytes = 16;  // of the first two parameters of a kernel
inline constexpr uint64_t kMaxBlocks = (uint64_t{1} << 31) - 1;

// How code is generated. These choices are part of the source.
struct CodeOptions {
  int most_elements = 16;  // of one thread's vector
  int most_vectors = 4;    // that a thread reads before it computes
};

// Of the first tier (kernel_compiler.h), the one that compiles fastest first.
inline constexpr CodeOptions kFirstTierCode[] = {{1, 1}, {4, 1}};

// Writes the code of a step's program: a kernel, or a product whose factors are in memory.
// `alignments`: powers of two, the alignment of the memory that each buffer of the program is bound
// to. RESOURCE_EXHAUSTED: there are more elements than one launch takes.
absl::StatusOr<KernelCode> WriteKernel(const Program& program,
                                       absl::Span<const uint32_t> alignments,
                                       const CodeOptions& options = {});

}  // namespace ferry::compute
