// SPDX-License-Identifier: Apache-2.0
// PeerTable's part of route `tcp`. Lanes are told of a peer once it has proven who it is. Data
// connections are given to the lane that they are for. The first set of connections that opens
// shows that the route works.
#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/peer_link.h"
#include "transfer/tcp/tcp_wire.h"

namespace ferry {

void PeerTable::StartTcp(Link& link) {
  link.tcp_unsettled = true;
  if (devices_.list.front()->tcp == nullptr) {
    return SettleTcp(link, "this daemon's transfer.order does not name it");
  }
  if ((link.hello.features & kPeerFeatureTcp) == 0) {
    return SettleTcp(link, absl::StrCat("the ferryd of ", link.config.node,
                                        " is older, or its transfer.order does not name it"));
  }
  TcpPeer peer;
  peer.id = link.id;
  peer.link = link.number;
  peer.name = link.config.node;
  peer.key = link.key;
  peer.devices = link.config.devices;
  if (link.dialled) {
    absl::StatusOr<TcpAddress> address = TcpAddress::Parse(link.hello.reached_at);
    if (!address.ok()) return SettleTcp(link, std::string(address.status().message()));
    peer.address = *address;
  }
  link.tcp = true;
  link.tcp_id = TcpLinkId(link.key);
  for (const auto& device : devices_.list) {
    device->lane->Post([tcp = device->tcp.get(), peer] { tcp->AddPeer(peer); });
  }
  if (!link.dialled) return;
  const auto& first = devices_.list.front();
  first->lane->Post([tcp = first->tcp.get(), peer = link.id, device = link.config.devices.front()] {
    tcp->Open(peer, device);
  });
}

void PeerTable::StopTcp(Link& link, const absl::Status& why) {
  link.tcp_id.clear();
  if (!std::exchange(link.tcp, false)) return;
  for (const auto& device : devices_.list) {
    device->lane->Post(
        [tcp = device->tcp.get(), peer = link.id, why] { tcp->RemovePeer(peer, why); });
  }
}

void PeerTable::OnTcpOpened(PeerId peer, uint64_t number, const absl::Status& status) {
  Link* const link = Find(peer);
  if (link != nullptr && link->number == number) SettleTcp(*link, std::string(status.message()));
}

void PeerTable::OnDataConnection(const std::string& bytes, UniqueFd socket) {
  const absl::StatusOr<TcpPreamble> preamble = DecodeTcpPreamble(bytes);
  if (!preamble.ok()) return;
  const auto found = std::find_if(links_.begin(), links_.end(), [&](const auto& link) {
    return link != nullptr && !link->tcp_id.empty() && link->tcp_id == preamble->link_id;
  });
  // The connection may belong to a link that was lost meanwhile; that is nobody's fault.
  if (found == links_.end()) return;
  Link& link = **found;
  const auto& theirs = link.config.devices;
  LocalDevice* const device = devices_.Find(preamble->to);
  if (link.dialled || !ProvesTcp(bytes, link.key) || device == nullptr ||
      std::find(theirs.begin(), theirs.end(), preamble->from) == theirs.end()) {
    FERRY_LOG_LIMITED(warn, "tcp.refused", LogFields("peer", link.config.node),
                      "a data connection does not prove that it is the peer's; closed");
    return;
  }
  const std::string answer = TcpAnswer(bytes, link.key);
  // A new connection always has room for so few bytes.
  if (send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(answer.size())) {
    return;
  }
  device->lane->Post(
      [tcp = device->tcp.get(), peer = link.id, preamble = *preamble,
       socket = std::move(socket)]() mutable { tcp->Accept(peer, preamble, std::move(socket)); });
}

void PeerTable::SettleTcp(Link& link, std::string error) {
  if (link.state != State::kSettling || !std::exchange(link.tcp_unsettled, false)) return;
  link.tcp_error = std::move(error);
  GoUp(link);
}

}  // namespace ferry
