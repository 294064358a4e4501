// SPDX-License-Identifier: Apache-2.0
// The daemon's own devices with their threads and routes. Built and owned by Daemon; constant after
// construction but for the counts, whose home is control.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/fd.h"
#include "base/ids.h"
#include "daemon/attach.h"
#include "daemon/lane_pulse.h"
#include "device/cuda/cuda_device.h"
#include "device/host/host_memory.h"
#include "device/lane.h"
#include "transfer/local/copy_transport.h"
#include "transfer/local/prepared_runner.h"
#include "transfer/nccl/nccl_transport.h"
#include "transfer/tcp/tcp_transport.h"
#include "transfer/ucx/ucx_transport.h"

namespace ferry {

struct LocalDevice {
  GlobalDeviceId id;
  std::string name;
  CudaDevice* gpu = nullptr;  // null: a host device
  // In this order: transports die before their lane.
  std::unique_ptr<SerialExecutor> memory;  // for what blocks: map, unmap
  LanePulse pulse;                         // of the lane
  std::unique_ptr<Lane> lane;
  std::unique_ptr<CopyTransport> copy;       // `local` and `mapped`
  std::unique_ptr<PreparedRunner> prepared;  // of the same, what is fired again and again
  std::unique_ptr<GpuStaging> staging;       // of a GPU, for the next two
  std::unique_ptr<TcpTransport> tcp;    // null if there are no peers, or it is not in the order
  std::unique_ptr<UcxTransport> ucx;    // null if there is none; see Daemon::ucx_state
  std::unique_ptr<NcclTransport> nccl;  // null if there is none, or for a host device
  int max_ctas = 0;                     // of its communicators; 0: NCCL's own choice
  // Control's counts.
  uint64_t arenas = 0;
  uint64_t arena_bytes = 0;
  uint64_t coming_bytes = 0;  // of arenas that are being mapped

  // As clients and operators see it.
  DeviceInfo info() const;

  // Maps memory of this kind of device that somebody shared. On a memory thread. `ours`: for an
  // arena of this device; else a peer's, to read.
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Map(const MemoryShare& share,
                                                    std::vector<UniqueFd> fds, bool ours) const;
};

class LocalDevices {
 public:
  // Outlive what is mapped on them, which sessions and peers' tables hold.
  std::vector<std::unique_ptr<CudaDevice>> gpus;
  std::vector<UniqueFd> gpu_locks;
  std::vector<std::unique_ptr<LocalDevice>> list;

  LocalDevice* Find(GlobalDeviceId id) const {
    for (const auto& device : list) {
      if (device->id == id) return device.get();
    }
    return nullptr;
  }
  std::string Shown() const;  // "0, 1", for people
};

}  // namespace ferry
