// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/cluster_devices.h"

#include <algorithm>

namespace ferry {

std::vector<ClusterDevice> ListClusterDevices(const LocalDevices& devices, const PeerTable& peers,
                                              const std::string& node) {
  std::vector<ClusterDevice> all;
  for (const auto& device : devices.list) {
    all.push_back({device->info(), true, node, device.get()});
  }
  for (const PeerTable::Row& row : peers.List()) {
    for (const GlobalDeviceId id : row.devices) {
      const auto told = std::find_if(row.told.begin(), row.told.end(),
                                     [id](const DeviceInfo& info) { return info.id == id; });
      const bool known = told != row.told.end();
      all.push_back({known ? *told : DeviceInfo{id, ""}, known, row.node});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const ClusterDevice& a, const ClusterDevice& b) { return a.info.id < b.info.id; });
  return all;
}

}  // namespace ferry
