// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/their_sockets.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/memfd.h"

namespace ferry {
namespace {

// OK if the descriptors may be those of this memory.
absl::Status CheckFit(const MemoryShare& memory, const ReceivedFds& fds) {
  for (size_t i = 0; i < fds.size(); ++i) {
    RETURN_IF_ERROR(memory.kind == MemoryKind::kMemfd ? CheckMemfd(fds[i].get(), memory.bytes)
                    : MayBeGpuMemory(fds[i].get())
                        ? absl::OkStatus()
                        : Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                                absl::StrCat("descriptor ", i, " is not one of a GPU's memory")));
  }
  return absl::OkStatus();
}

}  // namespace

const TheirSockets::Socket* TheirSockets::Find(PeerId peer) const {
  home_.Check();
  const auto it = sockets_.find(peer);
  return it == sockets_.end() ? nullptr : &it->second;
}

absl::Status TheirSockets::Connect(PeerId peer, const std::string& path, PeerSocketHello hello) {
  home_.Check();
  Socket& socket = sockets_[peer];
  ASSIGN_OR_RETURN(socket.connection, hooks_.connect(peer, path));
  if (hooks_.send_request(*socket.connection, {socket.next_sequence++, std::move(hello)})) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
               absl::StrCat("no answer at ", path));
}

bool TheirSockets::IsOpen(PeerId peer) const {
  const Socket* const socket = Find(peer);
  return socket != nullptr && socket->connection.has_value();
}

bool TheirSockets::Is(Door::ConnectionId connection, PeerId peer) const {
  const Socket* const socket = Find(peer);
  return socket != nullptr && socket->connection == connection;
}

std::optional<PeerId> TheirSockets::PeerOf(Door::ConnectionId connection) const {
  home_.Check();
  for (const auto& [peer, socket] : sockets_) {
    if (socket.connection == connection) return peer;
  }
  return std::nullopt;
}

bool TheirSockets::Send(PeerId peer, PeerFrame& frame) {
  home_.Check();
  Socket& socket = sockets_[peer];
  PeerSocketRequest request{socket.next_sequence++, std::move(frame)};
  if (hooks_.send_request(*socket.connection, request)) return true;
  frame = std::get<PeerFrame>(std::move(request.body));
  return false;
}

void TheirSockets::Fetch(PeerId peer, ArenaId arena, GlobalDeviceId device) {
  home_.Check();
  sockets_[peer].unasked.push_back({arena, devices_.Find(device)});
  if (Ask(peer)) control_.Post([] {});  // OnTime of the table says when it is called again
}

bool TheirSockets::Ask(PeerId peer) {
  home_.Check();
  const auto it = sockets_.find(peer);
  if (it == sockets_.end()) return false;
  Socket& socket = it->second;
  for (; socket.connection.has_value() && !socket.unasked.empty(); socket.unasked.pop_front()) {
    const uint64_t sequence = socket.next_sequence++;
    const Asked& next = socket.unasked.front();
    if (!hooks_.send_request(*socket.connection, {sequence, GetArena{next.arena}})) return true;
    socket.asked[sequence] = next;
  }
  return !socket.unasked.empty();
}

void TheirSockets::OnResponse(PeerId peer, const std::string& node, PeerSocketResponse response,
                              ReceivedFds fds) {
  home_.Check();
  Socket& socket = sockets_[peer];
  const auto it = socket.asked.find(response.sequence);
  if (it == socket.asked.end()) return;
  const Asked asked = it->second;
  socket.asked.erase(it);
  const auto* lent = std::get_if<ArenaLent>(&response.body);
  if (!response.error.ok() || lent == nullptr) {
    return answer_(peer, asked.arena,
                   response.error.ok() ? Error(absl::StatusCode::kInternal, Reason::kProtocolError,
                                               "a wrong answer from peer.sock")
                                       : response.error);
  }
  if (const absl::Status fit = CheckFit(lent->memory, fds); !fit.ok()) {
    return answer_(peer, asked.arena,
                   Annotate(fit, absl::StrCat("mapping ", asked.arena.ToString(), " of ", node)));
  }
  Map(peer, asked, lent->memory, std::move(fds), socket.life);
}

void TheirSockets::Map(PeerId peer, const Asked& asked, const MemoryShare& memory, ReceivedFds fds,
                       uint64_t life) {
  asked.device->memory->Post([this, peer, arena = asked.arena, device = asked.device, memory,
                              fds = fds.TakeAll(), life]() mutable {
    auto mapping = device->Map(memory, std::move(fds), /*ours=*/false);
    control_.Post([this, peer, arena, life, mapping = std::move(mapping)]() mutable {
      if (sockets_[peer].life != life) {
        // Of a link that is lost; nobody waits any more, or for an arena of the next link.
        if (mapping.ok()) devices_.list.front()->memory->Post([gone = *std::move(mapping)] {});
        return;
      }
      answer_(peer, arena, std::move(mapping));
    });
  });
}

void TheirSockets::OnClosed(PeerId peer) {
  home_.Check();
  sockets_[peer].connection.reset();
}

std::optional<Door::ConnectionId> TheirSockets::Take(PeerId peer) {
  home_.Check();
  const auto it = sockets_.find(peer);
  if (it == sockets_.end()) return std::nullopt;
  return std::exchange(it->second.connection, std::nullopt);
}

void TheirSockets::Close(PeerId peer) {
  home_.Check();
  const auto it = sockets_.find(peer);
  if (it == sockets_.end()) return;
  Socket& socket = it->second;
  if (socket.connection.has_value()) hooks_.close(*socket.connection);
  ++socket.life;
  socket.connection.reset();
  socket.asked.clear();
  socket.unasked.clear();
}

}  // namespace ferry
