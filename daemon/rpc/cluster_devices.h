// SPDX-License-Identifier: Apache-2.0
// Lists all devices of the cluster as this daemon knows them, for clients and operators. Must be
// called on control.
#pragma once

#include <string>
#include <vector>

#include "daemon/local_devices.h"
#include "daemon/peer/peer_table.h"
#include "daemon/rpc/convert.h"

namespace ferry {

struct ClusterDevice {
  DeviceInfo info;
  bool told = true;  // false: only the id is known, because its daemon was not heard of yet
  std::string node;
  const LocalDevice* own = nullptr;  // null for a peer's device
};

// Sorted by id. `node`: the name of this daemon's node.
std::vector<ClusterDevice> ListClusterDevices(const LocalDevices& devices, const PeerTable& peers,
                                              const std::string& node);

// Writes the id, and what else is known.
template <typename Device>
void ToProto(const ClusterDevice& device, Device* out) {
  ToProto(device.info, out->mutable_device());
  if (!device.told) out->mutable_device()->clear_kind();
  out->set_node(device.node);
  out->set_local(device.own != nullptr);
}

}  // namespace ferry
