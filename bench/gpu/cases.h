// SPDX-License-Identifier: Apache-2.0
// The GPU rows of the speed table, for one route between two GPUs, compared with the driver's own
// copy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/gpu/peers.h"
#include "bench/nodes.h"
#include "bench/report.h"
#include "tests/gpu/driver/gpu_driver.h"

namespace ferry::bench {

// "memory" must come before anything has used the daemons; "comms" and "cliques" are for `nccl`
// only; "programs" and "jobs", which need no route, are measured with `local`, "fused" and
// "fused_load", which is the same while others use the GPUs, with `mapped` and `nccl`.
inline const std::vector<std::string> kGpuCases = {
    "memory", "large",   "latency", "many",     "sharing", "load",  "loss",
    "comms",  "cliques", "peers",   "programs", "jobs",    "fused", "fused_load"};
inline const std::vector<std::string> kGpuRoutes = {"local", "mapped", "tcp", "ucx", "nccl"};

struct GpuSettings {
  std::string self = "/proc/self/exe";
  std::string ferryd;
  int rounds = 5;
  uint64_t large = uint64_t{1} << 30;
  uint64_t pings = 2000;
  std::vector<std::string> cases = kGpuCases;
  std::vector<std::string> routes = kGpuRoutes;
  GpuPeers peers;            // empty: was not asked for
  uint64_t free_before = 0;  // free memory of the destination's GPU, without daemons
};

inline constexpr int kDestinationGpu = 1;  // by the driver's index

// On `local` the first node has both GPUs; else each node has one.
absl::Status MeasureGpus(const GpuSettings& settings, const testing::GpuDriver* driver,
                         Nodes& nodes, int route, Report& report);

}  // namespace ferry::bench
