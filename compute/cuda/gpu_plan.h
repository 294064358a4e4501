// SPDX-License-Identifier: Apache-2.0
// What a GPU is to do for a program: its plan's steps as launches of generated kernels, calls of
// cuBLASLt, copies, and transfers that the daemon joins, all in one arena. A value: nothing is
// compiled or allocated, and equal programs have equal ones. Plain data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/kernel_code.h"
#include "compute/plan/plan.h"

namespace ferry::compute {

// Memory of a run: bytes after the begin of a buffer, a slot, or a temporary.
struct GpuPlace {
  enum class Kind : uint8_t { kBuffer, kSlot, kTemporary };
  Kind kind = Kind::kBuffer;
  uint32_t index = 0;
  uint64_t offset = 0;
};

// What is passed for one parameter of a kernel.
struct GpuArgument {
  std::optional<GpuPlace> place;  // its address
  int64_t number = 0;             // without one
  uint32_t bytes = 8;             // that the parameter has: 4 or 8
};

// Bytes of the arena that one step has for itself.
struct GpuTemporary {
  uint32_t step = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string use;
};

struct GpuKernel {
  std::string name;    // that its machine code has
  std::string source;  // with kEntryPlace for the name
};

// A factor or the result of a product: element (batch, row, column) is at batch * batch_stride +
// row * row_stride + column * column_stride, in elements; one of the last two is 1.
struct GpuMatrix {
  GpuPlace place;
  DType type = DType::kF32;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
  std::optional<GpuPlace> scales;  // swizzled, one of each block of a row
  DType scale_type = DType::kF8E8M0FNU;
};

// A call of cuBLASLt: result [m, n] = left [m, k] * right [n, k] transposed, in each batch.
struct GpuProduct {
  int64_t batches = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  DType compute = DType::kF32;  // in which it adds; without TF32 or other shortcuts
  int64_t block = 0;            // elements a scale; 0: without scales
  GpuMatrix left;
  GpuMatrix right;
  GpuMatrix result;
  GpuPlace workspace;
  uint64_t workspace_bytes = 0;
};

struct GpuCommand {
  enum class Kind : uint8_t { kLaunch, kProduct, kCopy, kSend, kReceive, kRepeat };
  Kind kind = Kind::kLaunch;
  uint32_t step = 0;  // of the plan
  // Of kLaunch.
  uint32_t kernel = 0;
  uint64_t blocks = 0;
  uint32_t threads = 0;
  std::vector<GpuArgument> arguments;
  // Of kProduct.
  GpuProduct product;
  // Of what multiplies matrices: how its sums are made, whatever the program allows.
  std::optional<Accumulation> accumulation;
  // Of kCopy; of kSend and kReceive the one that there is.
  GpuPlace to;
  GpuPlace from;
  uint64_t bytes = 0;
  std::optional<uint64_t> device;  // nothing: the one that a run says `peer` is
  std::string peer;
  std::string key;
  // Of kRepeat: `count`, if there is one, is an i32 that is the number of the trip, from 0.
  int64_t trips = 0;
  std::optional<GpuPlace> count;
  std::vector<GpuCommand> body;
};

struct GpuOptions {
  // What is known of where the program's buffers begin: a power of two. Slots are at multiples of
  // 256, temporaries of 1,024.
  uint32_t buffer_alignment = 256;
  CodeOptions code;
  bool library_products = true;  // else all by kernels of our own, which are plain
};

inline constexpr uint64_t kTemporaryAlignment = 1024;  // what TMA wants, which libraries use

struct GpuPlan {
  GpuArch arch;
  Plan plan;
  std::vector<GpuKernel> kernels;  // each once
  std::vector<GpuCommand> commands;
  std::vector<GpuTemporary> temporaries;
  uint64_t arena_bytes = 0;  // slots, then what steps have for themselves
};

// Of a program that Verify accepts, better simplified. RESOURCE_EXHAUSTED if it is too large.
absl::StatusOr<GpuPlan> MakeGpuPlan(const Program& program, const GpuArch& arch,
                                    const GpuOptions& options = {});

// Where in the arena a place is that is no buffer's.
uint64_t ArenaOffsetOf(const GpuPlan& plan, const GpuPlace& place);
// With the name in place.
std::string SourceOf(const GpuKernel& kernel);
// A line a command; `sources`: then those of the kernels.
std::string ToText(const GpuPlan& plan, bool sources = false);

}  // namespace ferry::compute
