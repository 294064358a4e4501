// SPDX-License-Identifier: Apache-2.0
// How much of a GPU's memory daemons take besides their clients' bytes, as the driver counts it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/gpu/driver/gpu_driver.h"

namespace ferry::bench {

struct DeviceMemory {
  int64_t idle = 0;          // memory of a daemon that nobody has asked for a GPU
  int64_t bare_context = 0;  // memory of another program that has opened a context
  int64_t context = 0;  // memory of a daemon with the first arena on the GPU, without the arena
  int64_t session = 0;  // memory of one more session with an arena there, without the arena
  int64_t left = 0;     // memory of the daemon when all sessions are gone
};

// Measures on the GPU `device` (by this process's index), which is the daemon's `global_id`.
// `before`: free memory before the daemon was started. Nobody else may use the GPU meanwhile.
absl::StatusOr<DeviceMemory> MeasureDeviceMemory(const testing::GpuDriver& driver, int device,
                                                 uint64_t before, const std::string& self,
                                                 const std::string& client_dir, uint64_t global_id);

}  // namespace ferry::bench
