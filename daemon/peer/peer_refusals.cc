// SPDX-License-Identifier: Apache-2.0
// PeerTable's refusals: both ends of a link are told in the same words why it cannot be. The daemon
// that accepts ends the stream with them. The daemon that dials says them in a frame and lets the
// other end the stream, because a stream that is cancelled may lose what was said on it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/status.h"
#include "daemon/peer/peer_link.h"

namespace ferry {

void PeerTable::Reject(Link& link, const absl::Status& why) {
  if (link.stream != nullptr) {
    Parting& parting = partings_[link.number];
    parting.since = control_.Now();
    if (link.dialled) {
      PeerFrame frame;
      frame.refusal = why;
      link.stream->Send(std::move(frame));
      parting.stream = std::move(link.stream);
    }
    if (link.socket.has_value())
      parting.sockets.push_back(*std::exchange(link.socket, std::nullopt));
    for (auto it = socket_peers_.begin(); it != socket_peers_.end();) {
      const auto at = it++;
      if (at->second != link.id) continue;
      parting.sockets.push_back(at->first);
      socket_peers_.erase(at);
    }
  }
  Lose(link, why);
}

bool PeerTable::IsParting(Door::ConnectionId socket) const {
  return std::any_of(partings_.begin(), partings_.end(), [&](const auto& entry) {
    const auto& sockets = entry.second.sockets;
    return std::find(sockets.begin(), sockets.end(), socket) != sockets.end();
  });
}

void PeerTable::EndParting(Partings::iterator parting) {
  for (const Door::ConnectionId socket : parting->second.sockets) hooks_.close(socket);
  partings_.erase(parting);
}

absl::Time PeerTable::DropLatePartings(absl::Time now) {
  while (!partings_.empty() && partings_.begin()->second.since + kPartingTimeout <= now) {
    EndParting(partings_.begin());
  }
  return partings_.empty() ? absl::InfiniteFuture()
                           : partings_.begin()->second.since + kPartingTimeout;
}

void PeerTable::OnRefused(Link& link, const absl::Status& why) {
  if (link.stream == nullptr) {
    link.error = why;
    Say(link, why, leaving_);
    driver_->OnPeerLost(link.id, why, false);
    return Tried(link);
  }
  // The existing link stays as it is: somebody else may have said this in the peer's name.
  FERRY_LOG_LIMITED(warn, "peer.refused", LogFields("peer", link.config.node), "{}",
                    std::string(why.message()));
}

absl::Status PeerTable::Unproven(const Link& link, const absl::Status& refusal) {
  return Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
               absl::StrCat("a caller that did not prove that it is ", link.config.node,
                            " refused the link: ", Printable(refusal.message())));
}

absl::Status PeerTable::RefuseStranger(const std::string& node, const absl::Status& why) {
  const std::string name = Printable(node);
  std::erase_if(strangers_, [&](const Stranger& stranger) { return stranger.node == name; });
  if (strangers_.size() == kMostStrangers) strangers_.erase(strangers_.begin());
  strangers_.push_back({name, std::string(why.message()), control_.Now()});
  FERRY_LOG_LIMITED(warn, "peer.refused", LogFields("peer", name), "{}",
                    std::string(why.message()));
  return why;
}

void PeerTable::AddStrangers(std::vector<Row>& rows) const {
  for (const Stranger& stranger : strangers_) {
    if (control_.Now() >= stranger.since + kStrangersKept) continue;
    Row row;
    row.node = stranger.node;
    row.state = "refused";
    row.error = stranger.why;
    rows.push_back(std::move(row));
  }
}

}  // namespace ferry
