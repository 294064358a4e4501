// SPDX-License-Identifier: Apache-2.0
// The daemon's own devices with their threads and routes. Built and owned by Daemon; constant after
// construction but for the counts, whose home is control.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/ids.h"
#include "device/lane.h"
#include "transfer/local/copy_transport.h"
#include "transfer/local/prepared_runner.h"
#include "transfer/ucx/ucx_transport.h"

namespace ferry {

struct LocalDevice {
  GlobalDeviceId id;
  std::string name;
  // In this order: transports die before their lane.
  std::unique_ptr<SerialExecutor> memory;  // for what blocks: map, unmap
  std::unique_ptr<Lane> lane;
  std::unique_ptr<CopyTransport> copy;       // `local` and `mapped`
  std::unique_ptr<PreparedRunner> prepared;  // of the same, what is fired again and again
  std::unique_ptr<UcxTransport> ucx;         // null if there is none; see Daemon::ucx_state
  // Control's counts.
  uint64_t arenas = 0;
  uint64_t arena_bytes = 0;
};

class LocalDevices {
 public:
  std::vector<std::unique_ptr<LocalDevice>> list;

  LocalDevice* Find(GlobalDeviceId id) const {
    for (const auto& device : list) {
      if (device->id == id) return device.get();
    }
    return nullptr;
  }
};

}  // namespace ferry
