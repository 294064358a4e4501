// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/own_socket.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace ferry {

std::optional<PeerId> OwnSocket::PeerOf(Door::ConnectionId connection) const {
  home_.Check();
  const auto it = connections_.find(connection);
  if (it == connections_.end()) return std::nullopt;
  return it->second;
}

void OwnSocket::Welcome(Door::ConnectionId connection, PeerId peer, uint64_t sequence,
                        PeerSocketWelcome welcome, const LinkPage& page) {
  home_.Check();
  connections_[connection] = peer;
  std::vector<int> fds = {page.memfd()};
  if (page.has_slots()) fds.insert(fds.end(), {page.makers_doorbell(), page.takers_doorbell()});
  hooks_.send_response(connection, {sequence, absl::OkStatus(), std::move(welcome)}, fds);
}

void OwnSocket::Refuse(Door::ConnectionId connection, const Credentials& credentials,
                       uint64_t sequence, absl::Status why) {
  home_.Check();
  PeerSocketResponse response;
  response.sequence = sequence;
  const std::string text(why.message());
  response.error = std::move(why);
  connections_.erase(connection);
  // What was read of a lost link before its connection was closed is nobody's fault.
  if (partings_.Has(connection) || !hooks_.send_response(connection, response, {})) return;
  FERRY_LOG_LIMITED(warn, "peer_socket.refused",
                    LogFields("pid", credentials.pid, "uid", credentials.uid), "{}", text);
  hooks_.close(connection);
}

void OwnSocket::Share(Door::ConnectionId connection, PeerId peer, const std::string& node,
                      uint64_t sequence, ArenaId id) {
  home_.Check();
  Arena* arena = lent_.IsLent(id, peer) ? sessions_.FindArena(id) : nullptr;
  PeerSocketResponse response;
  response.sequence = sequence;
  if (arena == nullptr || arena->mapping == nullptr) {  // a job's, that is not there yet
    response.error = Error(absl::StatusCode::kNotFound, Reason::kArenaNotFound,
                           absl::StrCat(id.ToString(), " was not offered to ", node));
    hooks_.send_response(connection, response, {});
    return;
  }
  const std::vector<int> fds = arena->mapping->fds();
  response.body = ArenaLent{id, arena->mapping->share()};
  hooks_.send_response(connection, response, fds);
}

OwnSocket::Connections::const_iterator OwnSocket::Find(PeerId peer) const {
  home_.Check();
  return std::find_if(connections_.begin(), connections_.end(),
                      [&](const auto& entry) { return entry.second == peer; });
}

bool OwnSocket::Has(PeerId peer) const { return Find(peer) != connections_.end(); }

void OwnSocket::Finish(PeerId peer) {
  home_.Check();
  hooks_.finish(Find(peer)->first);
}

void OwnSocket::Close(PeerId peer) {
  home_.Check();
  for (const Door::ConnectionId connection : Take(peer)) hooks_.close(connection);
}

std::vector<Door::ConnectionId> OwnSocket::Take(PeerId peer) {
  home_.Check();
  std::vector<Door::ConnectionId> taken;
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto here = it++;
    if (here->second != peer) continue;
    taken.push_back(here->first);
    connections_.erase(here);
  }
  return taken;
}

}  // namespace ferry
