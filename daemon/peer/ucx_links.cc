// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/ucx_links.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "daemon/peer/peer_routes.h"

namespace ferry {

std::string ReadNetworkNamespace() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/ns/net", ignored).string();
}

void UcxLinks::Tell(PeerId to, const LocalDevice& device, PeerHello& /*hello*/,
                    PeerDeviceInfo& info) const {
  home_.Check();
  const auto transport = transports_.find(device.id);
  if (transport == transports_.end()) return;
  info.ucx_addresses = transport->second->addresses(to);
  info.ucx_way = transport->second->way();
}

bool UcxLinks::AddPeers(const LinkView& link) {
  const std::string& space = link.hello.network_namespace;
  // Mapped: their peer.sock has passed on something that only one kernel can.
  const bool shares_memory = link.mapped && link.hello.uid == geteuid() &&
                             (space.empty() || space == ReadNetworkNamespace());
  bool any = false;
  for (const auto& device : devices_.list) {
    const auto of_device = transports_.find(device->id);
    if (of_device == transports_.end()) continue;
    UcxTransport* const transport = of_device->second;
    for (const PeerDeviceInfo& theirs : link.hello.devices) {
      // "shm" works only within one host, user and network namespace, where UCX has the sockets by
      // which it wakes others. "net" works wherever there is a network.
      const UcxAddressBlob* chosen = nullptr;
      for (const UcxAddressBlob& blob : theirs.ucx_addresses) {
        if (!transport->Reaches(blob.kind) || (blob.kind == "shm" && !shares_memory)) continue;
        if (chosen == nullptr || blob.kind == "shm") chosen = &blob;
      }
      if (chosen == nullptr) continue;
      any = true;
      const auto closings = chosen->closings.find(device->id);
      device->lane->Post([transport, peer = link.peer, id = theirs.id, blob = *chosen,
                          closed = closings == chosen->closings.end() ? 0 : closings->second] {
        transport->AddPeer(peer, id, blob, closed);
      });
    }
  }
  return any;
}

RouteState UcxLinks::GoUp(const LinkView& link, const PeerHello& ours) {
  home_.Check();
  std::string& error = known_[link.peer];
  if (AddPeers(link)) {
    error.clear();
  } else if (version_.empty()) {
    error = missing_;
  } else {
    error = absl::StrCat(link.node, " offers no UCX address that we can reach");
  }
  return UcxBetween(ours, error, link.hello, link.mapped);
}

void UcxLinks::OnMoved(const LinkView& link) {
  home_.Check();
  if (IsTold(link.peer)) AddPeers(link);
}

void UcxLinks::Stop(PeerId peer, const absl::Status& why) {
  home_.Check();
  const bool told = IsTold(peer);
  known_.erase(peer);
  if (!told) return;
  for (const auto& device : devices_.list) {
    const auto transport = transports_.find(device->id);
    if (transport == transports_.end()) continue;
    device->lane->Post([ucx = transport->second, peer, why] { ucx->RemovePeer(peer, why); });
  }
}

}  // namespace ferry
