// SPDX-License-Identifier: Apache-2.0
#include "transfer/device_map.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ferry {

std::string Shown(const DeviceMap& map) {
  std::vector<std::pair<PeerId, GlobalDeviceId>> sorted;
  for (const auto& [device, node] : map.owner) sorted.emplace_back(node, device);
  std::sort(sorted.begin(), sorted.end());
  constexpr size_t kShown = 32;
  std::string text;
  for (size_t i = 0; i < std::min(sorted.size(), kShown); ++i) {
    const auto& [node, device] = sorted[i];
    const bool same = i > 0 && sorted[i - 1].first == node;
    absl::StrAppend(&text, i == 0 ? "" : same ? ", " : "; ");
    if (!same) absl::StrAppend(&text, map.node_names[node.value()], " has ");
    absl::StrAppend(&text, device.value());
  }
  if (sorted.size() > kShown) absl::StrAppend(&text, " and ", sorted.size() - kShown, " more");
  return text;
}

const std::string& NodeName(const DeviceMap& map, PeerId peer) {
  static const std::string* const unnamed = new std::string("an unnamed node");
  return peer.value() < map.node_names.size() ? map.node_names[peer.value()] : *unnamed;
}

}  // namespace ferry
