// SPDX-License-Identifier: Apache-2.0
// What users have today for the same bytes between two GPUs: UCX's and NIXL's transfers between two
// processes, PyTorch's copies within one and sends between two, JAX's between two. Other programs,
// run to their ends within a minute each; what is not installed is left out. One thread.
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
  std::optional<double> jax_many;                            // the same by jax.device_put
  std::optional<double> torch_first;  // init_process_group and a first send of 1 MiB, ms
  std::optional<double> nixl_tiny;    // 10,000 x 4 KiB, ms
};
// `copies`: those without NCCL; `nccl`: those by NCCL. Says on stderr what it left out, and why.
GpuPeers MeasureGpuPeers(uint64_t large, bool copies, bool nccl);

}  // namespace ferry::bench
