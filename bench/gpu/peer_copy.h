// SPDX-License-Identifier: Apache-2.0
// The driver's own copy between two buffers of one process, with which Ferry is compared. One
// thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/gpu/driver/gpu_driver.h"

namespace ferry::bench {

absl::Status FromCuda(const testing::GpuDriver& driver, CUresult result, const char* doing);
// Waits until everything that was queued on the stream has run; an error after a minute.
absl::Status AwaitStream(const testing::GpuDriver& driver, CUstream stream, const char* doing);

class PeerCopy {
 public:
  PeerCopy(const testing::GpuDriver* driver, uint64_t bytes) : driver_(driver), bytes_(bytes) {}
  ~PeerCopy();
  PeerCopy(const PeerCopy&) = delete;
  PeerCopy& operator=(const PeerCopy&) = delete;

  absl::Status Make();
  // Copies `times` from device 0 to 1, or both ways at once.
  absl::StatusOr<absl::Duration> Copy(bool both, int times = 1);

 private:
  const testing::GpuDriver* const driver_;
  const uint64_t bytes_;
  CUdeviceptr memory_[2] = {};
  CUstream stream_[2] = {};
};

}  // namespace ferry::bench
