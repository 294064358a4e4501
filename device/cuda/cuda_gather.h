// SPDX-License-Identifier: Apache-2.0
// The gather kernel in a GPU's context: copies many small pieces in one launch, directly to where
// they go, a peer GPU's memory too. It takes SMs, which are the client's, so CudaCopier first asks
// whether it pays (MoverChoice). Made and destroyed with the context, where
// blocking is allowed. Home: its owner's, which is a CudaStream or an engine of CudaDevice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "device/copier.h"
#include "device/cuda/cuda_api.h"
#include "device/sm_load.h"

namespace ferry {

struct GatherTask {  // laid out as Task in gather.cu
  uint64_t to = 0, from = 0, bytes = 0;
};
// A list of tasks in memory that the GPU reads, and what is added to the tasks' addresses.
struct GatherTable {  // laid out as Table in gather.cu
  uint64_t tasks = 0;
  uint64_t end = 0;  // end of its tasks, counted over the tasks of all tables of a launch
  uint64_t to_shift = 0, from_shift = 0;
};
inline constexpr size_t kGatherTables = 16;  // of one launch, at most
struct GatherTables {                        // laid out as Tables in gather.cu
  GatherTable tables[kGatherTables];
};

class CudaGather {
 public:
  // A longer piece is cut into tasks of this size.
  static constexpr size_t kTaskBytes = size_t{64} << 10;
  static size_t TasksOf(absl::Span<const CopyPiece> pieces);

  // Most blocks of a launch. To or from a peer GPU: two for each SM of the largest GPUs; more were
  // not faster. Within a GPU's memory: 10,000 x 4 KiB take 41 us with these and 52 us with
  // kPeerBlocks (H100); 1,000 x 64 KiB take 58 us with either.
  static constexpr size_t kPeerBlocks = 264, kLocalBlocks = 1056;

  // Loads the kernel into the current context, with tables for `steps` launches under way, each of
  // at most `most_tasks` tasks.
  static absl::StatusOr<std::unique_ptr<CudaGather>> Make(const CudaApi& api, size_t steps,
                                                          size_t most_tasks,
                                                          size_t most_blocks = kPeerBlocks);
  ~CudaGather();

  // Launches. The table of `step` may be reused when the launch is over.
  absl::Status Launch(CUstream stream, size_t step, absl::Span<const CopyPiece> pieces);
  // Queues a copy of the table of `step` to `to`, memory of the GPU with room for it, from where
  // LaunchTables() can use it again and again. The table of `step` may be reused when the copy is
  // over. Returns the number of tasks.
  absl::StatusOr<uint32_t> Upload(CUstream stream, size_t step, absl::Span<const CopyPiece> pieces,
                                  CUdeviceptr to);
  // Launches all tasks of the first `count` tables. The last of these must not be empty.
  absl::Status LaunchTables(CUstream stream, GatherTables tables, size_t count);

 private:
  explicit CudaGather(const CudaApi& api) : api_(api) {}
  uint32_t Fill(size_t step, absl::Span<const CopyPiece> pieces);

  const CudaApi& api_;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  GatherTask* tables_ = nullptr;  // in pinned host memory: the kernel reads the tasks there
  size_t most_tasks_ = 0;
  size_t most_blocks_ = 0;
};

// Chooses who moves a step. Measured on two H200 over NVLink (2026-11-22), us, p50, pull:
//     pieces           copy engine, a call each / batched      kernel
//     16 x 64 KiB      125 / 31                                15
//     1,000 x 64 KiB   8,184 / 1,337                           193
//     10,000 x 4 KiB   63,891 / 9,755                          144
//     64 x 1 MiB       787 / 221                               195
//     1 x 256 MiB      689                                     (the copy engine's)
class MoverChoice {
 public:
  // Whether the kernel would be done before the copy engine.
  bool PreferKernel(size_t pieces, size_t bytes, absl::Time now) const;
  // Whether a launch that takes longer than expected tells that the SMs are busy. The expected time
  // is NVLink's. On a slower way that is only right for few bytes, which at 5 GB/s would still take
  // little time.
  static bool TellsOfSms(size_t bytes, bool slow_road) {
    return !slow_road || bytes <= size_t{1} << 20;
  }
  // A step of so many bytes is begun, or over. `tells`: the kernel moves it, and its time tells of
  // the SMs. Steps under way share the road, so that each may take as long as all of them together;
  // beside a step that does not tell no time means anything.
  void OnStepBegun(size_t bytes, bool tells, absl::Time now);
  void OnStepOver(size_t bytes, bool tells, absl::Time now);
  const SmLoad& sms() const { return sms_; }

 private:
  SmLoad sms_;
  size_t under_way_ = 0;    // bytes of the steps under way
  size_t silent_ = 0;       // steps under way that do not tell
  absl::Time since_;        // when a step was over last, or the first of those under way was begun
  size_t shared_ = 0;       // bytes of the steps that were under way since then
  bool disturbed_ = false;  // one of them does not tell
};

}  // namespace ferry
