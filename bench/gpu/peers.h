// SPDX-License-Identifier: Apache-2.0
// What users have today to move the same bytes between two GPUs: transfers of UCX and NIXL between
// two processes, copies of PyTorch within one process and sends between two, JAX between two
// devices. Each is another program that runs to its end within a minute. A program that is not
// installed is left out. One thread.
#pragma once

#include <cstdint>
#include <optional>

namespace ferry::bench {

// `ucx_perftest -t tag_bw` from one GPU to the other, by NVLink or PCIe (cuda_ipc), in GB/s.
std::optional<double> UcxBetweenGpus(uint64_t bytes, int iterations);

struct GpuPeers {
  std::optional<double> ucx_large, nixl_large, torch_large;  // GB/s
  std::optional<double> ucx_many, nixl_many, torch_many;     // 1,000 x 64 KiB, ms
  std::optional<double> torch_exchange_many;  // the same as torch_many by batch_isend_irecv
  std::optional<double> jax_many;             // the same by jax.device_put
  std::optional<double> torch_first;          // init_process_group and a first send of 1 MiB, ms
  std::optional<double> nixl_tiny;            // 10,000 x 4 KiB, ms
};
// `copies`: measures programs without NCCL; `nccl`: those with NCCL. Prints on stderr what it left
// out, and why.
GpuPeers MeasureGpuPeers(uint64_t large, bool copies, bool nccl);

}  // namespace ferry::bench
