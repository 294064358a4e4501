// SPDX-License-Identifier: Apache-2.0
// Measures whether NCCL moves memory faster that was registered with it before (ncclCommRegister):
// ncclSend and ncclRecv between two processes, each with a GPU and memory like that of arenas. One
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/gpu/driver/gpu_driver.h"

namespace ferry::bench {

struct Registered {
  absl::Duration plain, registered;  // medians of one send of all bytes
};

// Starts `self` so that it calls RunNcclRank. UNAVAILABLE if this NCCL cannot register memory.
absl::StatusOr<Registered> MeasureRegistered(const testing::GpuDriver& driver,
                                             const std::string& self, uint64_t bytes, int rounds);

// The receiver, on the second GPU. Carries out orders until the socket closes. Returns the exit
// status.
int RunNcclRank(int socket);

}  // namespace ferry::bench
