// SPDX-License-Identifier: Apache-2.0
// ncclSend and ncclRecv between two GPUs of one process that has both to itself: what route `nccl`
// is compared with. One thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/gpu/driver/gpu_driver.h"
#include "transfer/nccl/nccl_api.h"

namespace ferry::bench {

inline constexpr int kRawCtas = 16;  // the default of transfer.nccl.max_ctas
// The library that daemons use.
absl::StatusOr<const NcclApi*> OwnNccl();

class NcclCopy {
 public:
  NcclCopy(const testing::GpuDriver* driver, const NcclApi* nccl) : driver_(driver), nccl_(nccl) {}
  ~NcclCopy();
  NcclCopy(const NcclCopy&) = delete;
  NcclCopy& operator=(const NcclCopy&) = delete;

  // Opens a communicator with at most `max_ctas` CTAs, and allocates `bytes` on each GPU.
  absl::Status Make(int max_ctas, uint64_t bytes);
  // Copies from device 0 to 1: `count` operations of `bytes`, `together` in each NCCL group.
  // Measures until both streams are done.
  absl::StatusOr<absl::Duration> Copy(uint64_t count, uint64_t bytes, uint64_t together);

 private:
  const testing::GpuDriver* const driver_;
  const NcclApi* const nccl_;
  ncclComm_t comm_[2] = {};
  CUdeviceptr memory_[2] = {};
  CUstream stream_[2] = {};
};

}  // namespace ferry::bench
