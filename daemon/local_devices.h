// SPDX-License-Identifier: Apache-2.0
// The daemon's own devices, each with its threads and transports. Daemon builds and owns them.
// Constant after construction, except the counts, whose home is control.
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
  CudaDevice* gpu = nullptr;  // null for a host device
  // The order matters: transports are destroyed before their lane.
  std::unique_ptr<SerialExecutor> memory;  // maps and unmaps: what may block
  LanePulse pulse;                         // tells whether the lane stands still
  std::unique_ptr<Lane> lane;
  std::unique_ptr<CopyTransport> copy;  // routes `local` and `mapped`
  // The same routes, for transfers that are fired again and again
  std::unique_ptr<PreparedRunner> prepared;
  std::unique_ptr<GpuStaging> staging;  // host memory for `tcp` and `ucx`; null for a host device
  // Null if there are no peers, or the route is not in transfer.order
  std::unique_ptr<TcpTransport> tcp;
  std::unique_ptr<UcxTransport> ucx;    // null if there is no UCX; see Daemon::Impl::ucx_missing
  std::unique_ptr<NcclTransport> nccl;  // null if there is no NCCL, and for a host device
  int max_ctas = 0;  // the most CTAs of the GPU's communicators; 0: NCCL's own choice
  // Counts of control: arenas of clients and jobs that are mapped here, and their bytes.
  uint64_t arenas = 0;
  uint64_t arena_bytes = 0;
  uint64_t coming_bytes = 0;  // bytes of arenas that are being mapped

  // The device as clients and operators see it.
  DeviceInfo info() const;

  // Maps memory on this device that another process has shared. On a memory thread. `ours`: it
  // becomes an arena of this device; else it is a peer's arena, which is only read.
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Map(const MemoryShare& share,
                                                    std::vector<UniqueFd> fds, bool ours) const;
};

class LocalDevices {
 public:
  // Declared first, so that they outlive the memory that is mapped on them.
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
