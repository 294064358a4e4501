// SPDX-License-Identifier: Apache-2.0
// All devices of the cluster as this daemon knows them, for clients and for operators. On control.
#pragma once

#include <string>
#include <vector>

#include "daemon/local_devices.h"
#include "daemon/peer_table.h"
#include "daemon/rpc/convert.h"

namespace ferry {

struct ClusterDevice {
  DeviceInfo info;
  bool told = true;  // else only the id is known: its daemon was not heard of yet
  std::string node;
  const LocalDevice* own = nullptr;  // null: a peer's
};

// Sorted by id. `node`: this daemon's.
std::vector<ClusterDevice> ListClusterDevices(const LocalDevices& devices, const PeerTable& peers,
                                              const std::string& node);

// The id, and what else is known.
template <typename Device>
void ToProto(const ClusterDevice& device, Device* out) {
  ToProto(device.info, out->mutable_device());
  if (!device.told) out->mutable_device()->clear_kind();
  out->set_node(device.node);
  out->set_local(device.own != nullptr);
}

}  // namespace ferry
