// SPDX-License-Identifier: Apache-2.0
// What users have today for the same bytes between two GPUs: UCX's and NIXL's transfers between two
// processes and PyTorch's copies within one and sends between two. Other programs, run to their
// ends; what is not installed is left out. One thread.
#pragma once

#include <cstdint>
#include <optional>

namespace ferry::bench {

// Of `ucx_perftest -t tag_bw` from one GPU to the other, by NVLink or PCIe (cuda_ipc), in GB/s.
std::optional<double> UcxBetweenGpus(uint64_t bytes, int iterations);

struct GpuPeers {
  std::optional<double> ucx_large, nixl_large, torch_large;  // GB/s
  std::optional<double> ucx_many, nixl_many, torch_many;     // 1,000 x 64 KiB, ms
  std::optional<double> torch_exchange_many;                 // the same by batch_isend_irecv
  std::optional<double> nixl_tiny;                           // 10,000 x 4 KiB, ms
};
// Says on stderr what it left out, and why.
GpuPeers MeasureGpuPeers(uint64_t large);

}  // namespace ferry::bench
