// SPDX-License-Identifier: Apache-2.0
// PeerTable's part of route `ucx`. Lanes are told how to reach the peer's lanes, and peers are told
// when one of our lanes has other addresses than the hello said.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/peer_link.h"

namespace ferry {

std::string ReadNetworkNamespace() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/ns/net", ignored).string();
}

bool PeerTable::AddUcxPeers(Link& link) {
  const std::string& space = link.hello.network_namespace;
  // Mapped: their peer.sock has passed on something that only one kernel can.
  const bool shares_memory = link.mapped && link.hello.uid == geteuid() &&
                             (space.empty() || space == ReadNetworkNamespace());
  bool any = false;
  for (const auto& device : devices_.list) {
    if (device->ucx == nullptr) continue;
    for (const PeerDeviceInfo& theirs : link.hello.devices) {
      // "shm" works only within one host, user and network namespace, where UCX has the sockets by
      // which it wakes others. "net" works wherever there is a network.
      const UcxAddressBlob* chosen = nullptr;
      for (const UcxAddressBlob& blob : theirs.ucx_addresses) {
        if (!device->ucx->Reaches(blob.kind) || (blob.kind == "shm" && !shares_memory)) continue;
        if (chosen == nullptr || blob.kind == "shm") chosen = &blob;
      }
      if (chosen == nullptr) continue;
      any = true;
      const auto closings = chosen->closings.find(device->id);
      device->lane->Post([transport = device->ucx.get(), peer = link.id, id = theirs.id,
                          blob = *chosen,
                          closed = closings == chosen->closings.end() ? 0 : closings->second] {
        transport->AddPeer(peer, id, blob, closed);
      });
    }
  }
  return any;
}

void PeerTable::StartUcx(Link& link) {
  link.ucx = AddUcxPeers(link);
  if (link.ucx) {
    link.ucx_error.clear();
  } else if (options_.ucx_version.empty()) {
    link.ucx_error = options_.ucx_missing;
  } else {
    link.ucx_error = absl::StrCat(link.config.node, " offers no UCX address that we can reach");
  }
}

void PeerTable::StopUcx(Link& link, const absl::Status& why) {
  if (!std::exchange(link.ucx, false)) return;
  for (const auto& device : devices_.list) {
    if (device->ucx == nullptr) continue;
    device->lane->Post(
        [ucx = device->ucx.get(), peer = link.id, why] { ucx->RemovePeer(peer, why); });
  }
}

void PeerTable::OnUcxMoved(GlobalDeviceId device, std::optional<PeerId> to) {
  const UcxTransport& ucx = *devices_.Find(device)->ucx;
  for (const auto& link : links_) {
    if (link == nullptr || !link->proven || (to.has_value() && link->id != *to)) continue;
    // The dialler says hello as soon as both have proven who they are; the dialled daemon says it
    // when it has heard that.
    if (link->state != State::kSettling && link->state != State::kUp && !link->dialled) continue;
    PeerFrame frame;
    frame.moved.push_back({device, ucx.addresses(link->id)});
    link->stream->Send(std::move(frame));
  }
}

void PeerTable::OnMoved(Link& link, std::vector<PeerDeviceInfo> moved) {
  if (link.hello.ucx_version != options_.ucx_version) return;
  for (PeerDeviceInfo& now : moved) {
    for (PeerDeviceInfo& device : link.hello.devices) {
      if (device.id == now.id) device.ucx_addresses = std::move(now.ucx_addresses);
    }
  }
  if (link.ucx) AddUcxPeers(link);
}

}  // namespace ferry
