// SPDX-License-Identifier: Apache-2.0
// The daemon's own devices, each with its threads and transports. Daemon builds and owns them.
// Home: any thread, because they are constant after construction; the counts are control's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
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
#include "transfer/route.h"
#include "transfer/staging/host_staging.h"
#include "transfer/transport.h"

namespace ferry {

struct LocalDevice {
  LocalDevice() = default;
  ~LocalDevice();

  GlobalDeviceId id;
  std::string name;
  CudaDevice* gpu = nullptr;  // null for a host device
  // The order matters: transports are destroyed before their staging, and that before their lane.
  std::unique_ptr<SerialExecutor> memory;  // maps and unmaps: what may block
  LanePulse pulse;                         // tells whether the lane stands still
  std::unique_ptr<Lane> lane;
  std::unique_ptr<GpuStaging> staging;  // host memory for `tcp` and `ucx`; null for a host device
  int max_ctas = 0;  // the most CTAs of the GPU's communicators; 0: NCCL's own choice
  // Counts of control: arenas of clients and jobs that are mapped here, and their bytes.
  uint64_t arenas = 0;
  uint64_t arena_bytes = 0;
  uint64_t coming_bytes = 0;  // bytes of arenas that are being mapped

  // Gives the device a transport of its lane for `routes`: for their posted transfers, for those
  // that a lane keeps armed, or for both. The device owns it from here on. Returns it, for whoever
  // does more with it than launch (the links of a route, CommTable).
  enum class Serves : uint8_t { kPosted, kArmed, kBoth };
  template <typename T>
  T* Add(std::initializer_list<Route> routes, Serves serves, std::unique_ptr<T> transport) {
    T* const added = transport.get();
    AddTransport(routes, serves, std::move(transport));
    return added;
  }
  // The transport that launches the route's transfers (`armed`: keeps them until they are aborted).
  // Null: this daemon has not opened the route on this device.
  Transport* TransportOf(Route route, bool armed) const {
    const OfRoute& of = by_route_[static_cast<size_t>(route)];
    return armed ? of.armed : of.posted;
  }
  bool Has(Route route) const {
    return TransportOf(route, false) != nullptr || TransportOf(route, true) != nullptr;
  }

  // The device as clients and operators see it.
  DeviceInfo info() const;

  // Maps memory on this device that another process has shared. On a memory thread. `ours`: it
  // becomes an arena of this device; else it is a peer's arena, which is only read.
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Map(const MemoryShare& share,
                                                    std::vector<UniqueFd> fds, bool ours) const;

 private:
  struct OfRoute {
    Transport* posted = nullptr;
    Transport* armed = nullptr;
  };
  void AddTransport(std::initializer_list<Route> routes, Serves serves,
                    std::unique_ptr<Transport> transport);

  std::vector<std::unique_ptr<Transport>> transports_;  // the last are destroyed first
  std::array<OfRoute, kRoutes> by_route_;
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
