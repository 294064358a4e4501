// SPDX-License-Identifier: Apache-2.0
// Which daemon owns which device, and which routes a peer can be reached by: what the engine is
// told, as plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/ids.h"
#include "transfer/group.h"
#include "transfer/route_estimate.h"
#include "transfer/types.h"

namespace ferry {

struct DeviceMap {
  PeerId self;
  absl::flat_hash_map<GlobalDeviceId, PeerId> owner;
  std::vector<std::string> node_names;            // by PeerId, also of nodes that have left
  absl::flat_hash_set<GlobalDeviceId> gpus = {};  // of our own
};

// Which routes could be taken to or from a peer now; index by Route. A route that is not available
// says why ("node-b is on another host").
struct RouteState {
  bool available = false;
  std::string why;
  // Pairs of devices that cannot take it all the same.
  absl::flat_hash_map<Clique, std::string> except = {};
  // Between GPUs, until it is measured; none: nothing is known that would justify a try.
  std::optional<RoutePrior> prior = std::nullopt;
};
using RouteTable = std::vector<RouteState>;  // kRoutes entries

}  // namespace ferry
