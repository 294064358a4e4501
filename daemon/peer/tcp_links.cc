// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/tcp_links.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/peer/peer_routes.h"
#include "transfer/tcp/tcp_wire.h"

namespace ferry {

void TcpLinks::Tell(PeerId /*to*/, const LocalDevice& device, PeerHello& hello,
                    PeerDeviceInfo& /*info*/) const {
  home_.Check();
  if (transports_.contains(device.id)) hello.tcp = true;
}

void TcpLinks::Start(const LinkView& link) {
  home_.Check();
  Known& known = known_[link.peer];
  known = {link.number, link.dialled, link.node, link.devices, link.secret};
  known.unsettled = true;
  if (transports_.empty()) {
    Settle(link.peer, "this daemon's transfer.order does not name it");
    return;
  }
  if (!link.hello.tcp) {
    Settle(link.peer, absl::StrCat("transfer.order of ", link.node, " does not name it"));
    return;
  }
  TcpPeer peer;
  peer.id = link.peer;
  peer.link = link.number;
  peer.name = link.node;
  peer.secret = link.secret;
  peer.devices = link.devices;
  if (link.dialled) {
    absl::StatusOr<TcpAddress> address = TcpAddress::Parse(link.hello.reached_at);
    if (!address.ok()) {
      Settle(link.peer, std::string(address.status().message()));
      return;
    }
    peer.address = *address;
  }
  known.told = true;
  known.id = TcpLinkId(link.secret);
  for (const auto& device : devices_.list) {
    device->lane->Post([tcp = transports_.at(device->id), peer] { tcp->AddPeer(peer); });
  }
  if (!link.dialled) return;
  const auto& first = devices_.list.front();
  first->lane->Post([tcp = transports_.at(first->id), peer = link.peer,
                     device = link.devices.front()] { tcp->Open(peer, device); });
}

bool TcpLinks::IsUnsettled(PeerId peer) const {
  home_.Check();
  const auto known = known_.find(peer);
  return known != known_.end() && known->second.unsettled;
}

bool TcpLinks::GiveUp(PeerId peer, absl::Duration patience) {
  home_.Check();
  return Settle(peer, absl::StrCat("no data connection between the two daemons within ",
                                   DurationText(patience)));
}

RouteState TcpLinks::GoUp(const LinkView& link, const PeerHello& /*ours*/) {
  home_.Check();
  return StagedBetween(known_[link.peer].error, link.mapped);
}

void TcpLinks::Stop(PeerId peer, const absl::Status& why) {
  home_.Check();
  const auto known = known_.find(peer);
  if (known == known_.end()) return;
  const bool told = known->second.told;
  known_.erase(known);
  if (!told) return;
  for (const auto& device : devices_.list) {
    device->lane->Post(
        [tcp = transports_.at(device->id), peer, why] { tcp->RemovePeer(peer, why); });
  }
}

bool TcpLinks::OnOpened(PeerId peer, uint64_t link_number, const absl::Status& status) {
  home_.Check();
  const auto known = known_.find(peer);
  return known != known_.end() && known->second.number == link_number &&
         Settle(peer, std::string(status.message()));
}

bool TcpLinks::Settle(PeerId peer, std::string error) {
  const auto known = known_.find(peer);
  if (known == known_.end() || !std::exchange(known->second.unsettled, false)) return false;
  known->second.error = std::move(error);
  return true;
}

void TcpLinks::OnDataConnection(const std::string& bytes, UniqueFd socket) {
  home_.Check();
  const absl::StatusOr<TcpPreamble> preamble = DecodeTcpPreamble(bytes);
  if (!preamble.ok()) return;
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const auto& entry) {
    return !entry.second.id.empty() && entry.second.id == preamble->link_id;
  });
  // The connection may belong to a link that was lost meanwhile; that is nobody's fault.
  if (found == known_.end()) return;
  const Known& link = found->second;
  LocalDevice* const device = devices_.Find(preamble->to);
  if (link.dialled || !ProvesTcp(bytes, link.secret) || device == nullptr ||
      std::find(link.devices.begin(), link.devices.end(), preamble->from) == link.devices.end()) {
    FERRY_LOG_LIMITED(warn, "tcp.refused", LogFields("peer", link.node),
                      "a data connection does not prove that it is the peer's; closed");
    return;
  }
  const std::string answer = TcpAnswer(bytes, link.secret);
  // A new connection always has room for so few bytes.
  if (send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(answer.size())) {
    return;
  }
  device->lane->Post(
      [tcp = transports_.at(device->id), peer = found->first, preamble = *preamble,
       socket = std::move(socket)]() mutable { tcp->Accept(peer, preamble, std::move(socket)); });
}

}  // namespace ferry
