// SPDX-License-Identifier: Apache-2.0
// A DeviceMap as text for people. Pure; any thread.
#pragma once

#include <string>

#include "transfer/route_table.h"

namespace ferry {

// "node-a has 0, 1; node-b has 2, 3"; if there are many, only the first.
std::string Shown(const DeviceMap& map);
// "an unnamed node" of a peer that the map does not name.
const std::string& NodeName(const DeviceMap& map, PeerId peer);

}  // namespace ferry
