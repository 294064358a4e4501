// SPDX-License-Identifier: Apache-2.0
// PeerTable's part of route `ucx`: lanes are told how to reach the peer's, and peers when a lane is
// reached otherwise than the hello has said.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "daemon/peer_link.h"

namespace ferry {

bool PeerTable::AddUcxPeers(Link& link) {
  const bool same_user = link.hello.boot_id == boot_id_ && link.hello.uid == geteuid();
  bool any = false;
  for (const auto& device : devices_.list) {
    if (device->ucx == nullptr) continue;
    for (const PeerDeviceInfo& theirs : link.hello.devices) {
      // "shm" only works within one host and user; "net" works wherever there is a network.
      const UcxAddressBlob* chosen = nullptr;
      for (const UcxAddressBlob& blob : theirs.ucx_addresses) {
        if (!device->ucx->Reaches(blob.kind) || (blob.kind == "shm" && !same_user)) continue;
        if (chosen == nullptr || blob.kind == "shm") chosen = &blob;
      }
      if (chosen == nullptr) continue;
      any = true;
      device->lane->Post([transport = device->ucx.get(), peer = link.id, id = theirs.id,
                          blob = *chosen] { transport->AddPeer(peer, id, blob); });
    }
  }
  return any;
}

void PeerTable::OnUcxMoved(GlobalDeviceId device) {
  const std::vector<UcxAddressBlob> addresses = devices_.Find(device)->ucx->addresses();
  for (const auto& link : links_) {
    if (link == nullptr || !link->proven) continue;
    // The dialler says hello as soon as both are proven, the dialled one when it has heard that.
    if (link->state != State::kSettling && link->state != State::kUp && !Dials(*link)) continue;
    PeerFrame frame;
    frame.moved.push_back({device, addresses});
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
  if (link.state == State::kUp) AddUcxPeers(link);
}

}  // namespace ferry
