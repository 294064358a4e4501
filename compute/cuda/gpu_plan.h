// SPDX-License-Identifier: Apache-2.0
// What a GPU does for a program: the steps of the program's plan as launches of generated kernels,
// calls of cuBLASLt, copies, and transfers that the daemon joins, all within one scratch. A value:
// nothing is compiled or allocated, and equal programs have equal GpuPlans. Plain data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "compute/cuda/gpu_arch.h"
#include "compute/cuda/kernel_code.h"
#include "compute/plan/plan.h"

namespace ferry::compute {

// A place in the memory of a run: `offset` bytes after the begin of a buffer, a slot or a
// temporary.
struct GpuPlace {
  enum class Kind : uint8_t { kBuffer, kSlot, kTemporary };
  Kind kind = Kind::kBuffer;
  uint32_t index = 0;
  uint64_t offset = 0;
};

// What is passed for one parameter of a kernel: an address or a number.
struct GpuArgument {
  std::optional<GpuPlace> place;  // not set: `number` is passed
  int64_t number = 0;             // the value, if there is no `place`
  uint32_t bytes = 8;             // size of the parameter: 4 or 8
};

// Bytes of the scratch that one step has to itself.
struct GpuTemporary {
  uint32_t step = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string use;
};

struct GpuKernel {
  std::string name;    // its name in the machine code
  std::string source;  // has kEntryPlace in place of the name
};

// A factor or the result of a product. Element (batch, row, column) is at batch * batch_stride +
// row * row_stride + column * column_stride; all in elements. One of the last two strides is 1.
struct GpuMatrix {
  GpuPlace place;
  DType type = DType::kF32;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
  uint32_t alignment = 16;         // a power of two, in bytes: what is known of its address
  std::optional<GpuPlace> scales;  // block scales, swizzled: one for each block of a row
  DType scale_type = DType::kF8E8M0FNU;
};

// A call of cuBLASLt: in each batch, result [m, n] = left [m, k] * transposed right [n, k]. The
// batches may be those of a program's product, or pieces of its k.
struct GpuProduct {
  int64_t batches = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  DType compute = DType::kF32;  // the type of the sums; no TF32 or other shortcuts
  bool adds = false;            // to what is in `result`, which is of the type of the sums then
  int64_t block = 0;            // elements for each scale; 0: there are no scales
  // Three f32 in memory: what all of the product is multiplied with, 0 and 1. Not set: nothing is.
  std::optional<GpuPlace> factors;
  GpuMatrix left;
  GpuMatrix right;
  GpuMatrix result;
  GpuPlace workspace;
  uint64_t workspace_bytes = 0;
};

// A launch that does the same as another one, with the same bits, by a kernel that compiles faster
// and runs longer.
struct GpuLaunch {
  uint32_t kernel = 0;  // in GpuPlan::first_kernels
  uint64_t blocks = 0;
  uint32_t threads = 0;
  std::vector<GpuArgument> arguments;
};

struct GpuCommand {
  enum class Kind : uint8_t { kLaunch, kProduct, kCopy, kSend, kReceive, kRepeat };
  Kind kind = Kind::kLaunch;
  uint32_t step = 0;  // the number of the plan's step
  // kLaunch:
  uint32_t kernel = 0;
  uint64_t blocks = 0;
  uint32_t threads = 0;
  uint64_t busy = 0;  // threads that have something to do
  std::vector<GpuArgument> arguments;
  // What may stand for it until its kernel is compiled. Any launches of a run may be so, and others
  // not.
  std::optional<GpuLaunch> first;
  // kProduct:
  GpuProduct product;
  // A command that multiplies matrices: how its sums are made, whatever more the program allows.
  std::optional<Accumulation> accumulation;
  // kCopy: both places. kSend: `from`; kReceive: `to`.
  GpuPlace to;
  GpuPlace from;
  uint64_t bytes = 0;
  std::optional<uint64_t> device;  // not set: the device that the run gives for `peer`
  std::string peer;
  std::string key;
  // kRepeat: `count`, if set, is an i32 with the number of the trip, from 0.
  int64_t trips = 0;
  std::optional<GpuPlace> count;
  std::vector<GpuCommand> body;
};

struct GpuOptions {
  // A power of two: the known alignment of the program's buffers, in bytes. Slots are aligned to
  // 256, temporaries to 1,024.
  uint32_t buffer_alignment = 256;
  CodeOptions code;
  bool library_products = true;  // false: only our own kernels multiply, which are plain
  // Numbers of the plan's steps whose products our own kernels make, whatever a library may have.
  absl::flat_hash_set<uint32_t> own_products;
  bool first_tier = false;  // launches have a `first`, where that is possible
  // Whether tensor cores may take block scales, where a program allows it and they can.
  bool native_blocks = true;
  // Numbers of the plan's steps whose block scales tensor cores do not take all the same.
  absl::flat_hash_set<uint32_t> dequantized;
};

inline constexpr uint64_t kTemporaryAlignment = 1024;  // what TMA needs, which libraries use

struct GpuPlan {
  GpuArch arch;
  Plan plan;
  std::vector<GpuKernel> kernels;        // each kernel once
  std::vector<GpuKernel> first_kernels;  // the same, of the first tier
  std::vector<GpuCommand> commands;
  std::vector<GpuTemporary> temporaries;
  uint64_t scratch_bytes = 0;  // slots, then temporaries
};

// Plans a program that Verify accepts, better if it is simplified. RESOURCE_EXHAUSTED: it is too
// large.
absl::StatusOr<GpuPlan> MakeGpuPlan(const Program& program, const GpuArch& arch,
                                    const GpuOptions& options = {});

// The work of a launch, as the work that takes a whole GPU as long: `work` (WorkOf), more if fewer
// than kThreadsOfGpu threads are busy with it. Example: the running sum of one line of 2^20 f32 has
// the work of 9.4e6 bytes, which one thread does, so it counts as 1.5e11.
uint64_t LaunchWorkOf(uint64_t work, uint64_t busy);
// Threads that keep a GPU busy. Reckoned, not measured: an H200's memory has 4.8 TB/s and answers
// after some 0.5 us, so 2.4 MB are under way at its full speed, 150 bytes for each of these
// threads.
inline constexpr uint64_t kThreadsOfGpu = 16'384;
// The threads that are busy in the widest launch of each of the plan's steps, by the step's number.
// A call of cuBLASLt counts as kThreadsOfGpu: the step's work is the library's, whatever our own
// kernels do before and after it. A step that launches nothing is not there.
absl::flat_hash_map<uint32_t, uint64_t> BusyThreadsOf(const GpuPlan& plan);
// The numbers of the plan's steps that are products by tensor cores: cuBLASLt multiplies factors of
// at most 16 bits.
absl::flat_hash_set<uint32_t> StepsOfTensorCores(const GpuPlan& plan);

// The offset in the scratch of a place that is in no buffer.
uint64_t ScratchOffsetOf(const GpuPlan& plan, const GpuPlace& place);
// The kernel's source with its name filled in.
std::string SourceOf(const GpuKernel& kernel);
// One line for each command; with `sources` followed by the kernels' sources.
std::string ToText(const GpuPlan& plan, bool sources = false);

}  // namespace ferry::compute
