// SPDX-License-Identifier: Apache-2.0
// Whether NCCL moves memory faster that it was told of before (ncclCommRegister): ncclSend and
// ncclRecv between two processes, each with a GPU and memory as arenas have it. One thread.
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

// `self` and nothing else run RunNcclRank. UNAVAILABLE: this NCCL cannot register memory.
absl::StatusOr<Registered> MeasureRegistered(const testing::GpuDriver& driver,
                                             const std::string& self, uint64_t bytes, int rounds);

// The receiver, on the second GPU; obeys until the socket closes. Returns its exit status.
int RunNcclRank(int socket);

}  // namespace ferry::bench
