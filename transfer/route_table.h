// SPDX-License-Identifier: Apache-2.0
// Which daemon owns which device, and by which routes a peer can be reached: what the engine is
// told, as plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/ids.h"
#include "transfer/clique/group.h"
#include "transfer/route_estimate.h"
#include "transfer/types.h"

namespace ferry {

struct DeviceMap {
  PeerId self;
  absl::flat_hash_map<GlobalDeviceId, PeerId> owner;
  std::vector<std::string> node_names;            // by PeerId, also of nodes that have left
  absl::flat_hash_set<GlobalDeviceId> gpus = {};  // those of this daemon's devices that are GPUs
};

// Whether a route could be taken to or from a peer now. If it is not available, `why` says why not
// ("node-b is on another host").
struct RouteState {
  bool available = false;
  std::string why;
  // By pair of devices that cannot take the route although it is available: why not.
  absl::flat_hash_map<Clique, std::string> except = {};
  // For transfers between GPUs, until the route is measured; none: nothing justifies a try.
  std::optional<RoutePrior> prior = std::nullopt;
};
using RouteTable = std::vector<RouteState>;  // kRoutes entries, by Route

}  // namespace ferry
