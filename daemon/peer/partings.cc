// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/partings.h"

#include <algorithm>

namespace ferry {

void Partings::Add(uint64_t number, std::unique_ptr<PeerStream> stream,
                   std::vector<Door::ConnectionId> sockets) {
  home_.Check();
  partings_[number] = {std::move(stream), control_.Now(), std::move(sockets)};
}

bool Partings::Has(Door::ConnectionId socket) const {
  home_.Check();
  return std::any_of(partings_.begin(), partings_.end(), [&](const auto& entry) {
    const auto& sockets = entry.second.sockets;
    return std::find(sockets.begin(), sockets.end(), socket) != sockets.end();
  });
}

void Partings::End(uint64_t number) {
  home_.Check();
  const auto parting = partings_.find(number);
  if (parting == partings_.end()) return;
  for (const Door::ConnectionId socket : parting->second.sockets) close_(socket);
  partings_.erase(parting);
}

void Partings::EndAll() {
  home_.Check();
  while (!partings_.empty()) End(partings_.begin()->first);
}

absl::Time Partings::OnTime(absl::Time now) {
  home_.Check();
  while (!partings_.empty() && partings_.begin()->second.since + kTimeout <= now) {
    End(partings_.begin()->first);
  }
  return partings_.empty() ? absl::InfiniteFuture() : partings_.begin()->second.since + kTimeout;
}

}  // namespace ferry
