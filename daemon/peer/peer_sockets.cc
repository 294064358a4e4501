// SPDX-License-Identifier: Apache-2.0
// PeerTable's other half: peer.sock, by which daemons of one host map each other's arenas and hear
// what the other one says on the link. A connection shows the nonce of one link, so it is of that
// link and of no other.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/peer/peer_link.h"
#include "daemon/peer/peer_proof.h"
#include "device/memfd.h"

namespace ferry {

void PeerTable::CloseSockets(Link& link) {
  if (link.socket.has_value()) hooks_.close(*link.socket);
  link.socket.reset();
  link.asked.clear();
  link.unasked.clear();
  {
    MutexLock lock(pages_mutex_);
    pages_[link.id.value()].page.reset();
  }
  for (auto it = socket_peers_.begin(); it != socket_peers_.end();) {
    auto here = it++;
    if (here->second != link.id) continue;
    hooks_.close(here->first);
    socket_peers_.erase(here);
  }
  for (const ArenaId arena : link.lent) {
    auto it = lent_to_.find(arena);
    if (it == lent_to_.end()) continue;
    std::erase(it->second, link.id);
    if (it->second.empty()) lent_to_.erase(it);
  }
  link.lent.clear();
  link.last_lent = ArenaId();
}

void PeerTable::OnArenaGone(ArenaId arena) {
  home_.Check();
  auto it = lent_to_.find(arena);
  if (it == lent_to_.end()) return;
  for (const PeerId peer : it->second) {
    Link& link = *Find(peer);
    link.lent.erase(arena);
    if (link.last_lent == arena) link.last_lent = ArenaId();
    if (link.state == State::kUp) Tell(link, {{{}, {arena}}});
  }
  lent_to_.erase(it);
}

void PeerTable::FetchArena(PeerId peer, ArenaId arena, GlobalDeviceId device) {
  home_.Check();
  Link* const link = Find(peer);
  if (link == nullptr || (!link->socket.has_value() && !link->ending.has_value())) {
    control_.Post([this, peer, arena] {
      driver_->OnPeerArena(peer, arena,
                           Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                                 "there is no connection to its owner's peer.sock"));
    });
    return;
  }
  link->unasked.push_back({arena, devices_.Find(device)});
  AskForArenas(*link);
  if (!link->unasked.empty()) control_.Post([] {});  // OnTime says when it is called again
}

// What the connection does not take waits: it is full of frames, or has ended, which the door is
// about to tell, and then the link is lost.
void PeerTable::AskForArenas(Link& link) {
  for (; link.socket.has_value() && !link.unasked.empty(); link.unasked.pop_front()) {
    const uint64_t sequence = link.next_sequence++;
    const Link::Asked& next = link.unasked.front();
    if (!hooks_.send_request(*link.socket, {sequence, GetArena{next.arena}})) return;
    link.asked[sequence] = next;
  }
}

absl::Status PeerTable::StillValid(PeerId peer) const {
  if (peer == self_) return absl::OkStatus();
  MutexLock lock(pages_mutex_);
  const auto& [node, page] = pages_[peer.value()];
  if (page != nullptr && !page->Revoked()) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
               absl::StrCat(node, " gave up the link during the copy"));
}

std::shared_ptr<LinkPage> PeerTable::PageWithSlots(PeerId peer, bool ours) const {
  home_.Check();
  if (Find(peer) == nullptr) return nullptr;
  std::shared_ptr<LinkPage> page = Find(peer)->our_page;
  if (!ours) {
    MutexLock lock(pages_mutex_);
    page = pages_[peer.value()].page;
  }
  return page != nullptr && page->has_slots() ? page : nullptr;
}

void PeerTable::RefuseSocket(Door::ConnectionId connection, const Credentials& credentials,
                             uint64_t sequence, absl::Status why) {
  PeerSocketResponse response;
  response.sequence = sequence;
  const std::string text(why.message());
  response.error = std::move(why);
  socket_peers_.erase(connection);
  // What was read of a lost link before its connection was closed is nobody's fault.
  if (IsParting(connection) || !hooks_.send_response(connection, response, {})) return;
  FERRY_LOG_LIMITED(warn, "peer_socket.refused",
                    LogFields("pid", credentials.pid, "uid", credentials.uid), "{}", text);
  hooks_.close(connection);
}

void PeerTable::OnSocketHello(Door::ConnectionId connection, const Credentials& credentials,
                              uint64_t sequence, const PeerSocketHello& hello) {
  PeerSocketWelcome welcome;
  Link* link = FindByNode(hello.node);
  const bool trusted = TrustsUid(credentials.uid);
  if (const auto caller = FindCaller(hello); trusted && caller != callers_.end()) {
    link = Find(caller->second.peer);
    welcome.random = RandomBytes(kPeerSecretBytes);
    if (absl::Status taken = TakeOver(caller, hello.random + welcome.random); !taken.ok()) {
      Refuse(caller, taken);
      return RefuseSocket(connection, credentials, sequence, std::move(taken));
    }
  }
  if (!trusted || link == nullptr || !link->proven ||
      !SameBytes(link->ours.nonce, hello.asked_nonce) || link->our_page == nullptr) {
    return RefuseSocket(
        connection, credentials, sequence,
        Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
              absl::StrCat("peer.sock of ", options_.node,
                           ": the caller is not the daemon at the other end of a link, or its uid ",
                           credentials.uid, " is not trusted (peer.uids)")));
  }
  socket_peers_[connection] = link->id;
  std::vector<int> fds = {link->our_page->memfd()};
  if (hello.prepared) {
    fds.insert(fds.end(), {link->our_page->makers_doorbell(), link->our_page->takers_doorbell()});
  }
  hooks_.send_response(connection, {sequence, absl::OkStatus(), std::move(welcome)}, fds);
}

void PeerTable::ShareArena(Door::ConnectionId connection, const Link& link, uint64_t sequence,
                           ArenaId id) {
  Arena* arena = link.lent.contains(id) ? sessions_.FindArena(id) : nullptr;
  PeerSocketResponse response;
  response.sequence = sequence;
  if (arena == nullptr || arena->mapping == nullptr) {  // a job's, that is not there yet
    response.error = Error(absl::StatusCode::kNotFound, Reason::kArenaNotFound,
                           absl::StrCat(id.ToString(), " was not offered to ", link.config.node));
    hooks_.send_response(connection, response, {});
    return;
  }
  const std::vector<int> fds = arena->mapping->fds();
  response.body = ArenaLent{id, arena->mapping->share()};
  hooks_.send_response(connection, response, fds);
}

void PeerTable::OnSocketRequest(Door::ConnectionId connection, const Credentials& credentials,
                                PeerSocketRequest request) {
  home_.Check();
  if (const auto* hello = std::get_if<PeerSocketHello>(&request.body)) {
    return OnSocketHello(connection, credentials, request.sequence, *hello);
  }
  auto it = socket_peers_.find(connection);
  if (it == socket_peers_.end()) {
    return RefuseSocket(connection, credentials, request.sequence,
                        Error(absl::StatusCode::kPermissionDenied, Reason::kProtocolError,
                              "peer.sock: say hello first"));
  }
  Link& link = *Find(it->second);
  if (auto* frame = std::get_if<PeerFrame>(&request.body)) return OnEvents(link, std::move(*frame));
  ShareArena(connection, link, request.sequence, std::get<GetArena>(request.body).arena);
}

// What our connection to their peer.sock answers to its hello.
void PeerTable::OnWelcome(Link& link, PeerSocketResponse response, ReceivedFds fds) {
  const auto* const welcome =
      response.error.ok() ? std::get_if<PeerSocketWelcome>(&response.body) : nullptr;
  absl::Status mapped = response.error;
  if (mapped.ok() && (welcome == nullptr || (fds.size() != 1 && fds.size() != 3))) {
    mapped = Error(absl::StatusCode::kUnavailable, Reason::kProtocolError,
                   absl::StrCat(link.theirs.peer_socket, " gave a wrong answer"));
  }
  if (mapped.ok()) {
    absl::StatusOr<std::unique_ptr<LinkPage>> page =
        fds.size() == 1 ? LinkPage::Map(std::move(fds[0]))
                        : LinkPage::Map(std::move(fds[0]), std::move(fds[1]), std::move(fds[2]));
    mapped = page.status();
    MutexLock lock(pages_mutex_);
    if (page.ok()) pages_[link.id.value()].page = *std::move(page);
  }
  if (link.proven) return Settle(link, std::string(mapped.message()));
  // Who listens there is a daemon of a uid that we trust, and says that this link is its own.
  if (welcome == nullptr || welcome->random.size() != kPeerSecretBytes) {
    return Reject(
        link, mapped.ok() ? Error(absl::StatusCode::kUnavailable, Reason::kProtocolError,
                                  absl::StrCat(link.theirs.peer_socket, " did not prove who it is"))
                          : mapped);
  }
  link.mapped_error = std::string(mapped.message());
  Proven(link, link.random + welcome->random);
  SayHello(link);
}

void PeerTable::OnSocketResponse(PeerId peer, Door::ConnectionId connection,
                                 PeerSocketResponse response, ReceivedFds fds) {
  home_.Check();
  if (Find(peer) == nullptr) return;
  Link& link = *Find(peer);
  if (link.socket != connection) return;
  if (link.mapped_unsettled || !link.proven) {
    return OnWelcome(link, std::move(response), std::move(fds));
  }
  auto it = link.asked.find(response.sequence);
  if (it == link.asked.end()) return;
  const auto [arena, device] = it->second;
  link.asked.erase(it);
  const auto* lent = std::get_if<ArenaLent>(&response.body);
  if (!response.error.ok() || lent == nullptr) {
    driver_->OnPeerArena(peer, arena,
                         response.error.ok()
                             ? Error(absl::StatusCode::kInternal, Reason::kProtocolError,
                                     "a wrong answer from peer.sock")
                             : response.error);
    return;
  }
  const bool memfd = lent->memory.kind == MemoryKind::kMemfd;
  for (size_t i = 0; i < fds.size(); ++i) {
    absl::Status fit = memfd ? CheckMemfd(fds[i].get(), lent->memory.bytes)
                       : MayBeGpuMemory(fds[i].get())
                           ? absl::OkStatus()
                           : Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                                   absl::StrCat("descriptor ", i, " is not one of a GPU's memory"));
    if (!fit.ok()) {
      return driver_->OnPeerArena(
          peer, arena,
          Annotate(fit, absl::StrCat("mapping ", arena.ToString(), " of ", link.config.node)));
    }
  }
  // Mapping may block; it belongs to a memory thread.
  device->memory->Post([this, peer, arena = arena, device = device, memory = lent->memory,
                        fds = fds.TakeAll(), number = link.number]() mutable {
    auto mapping = device->Map(memory, std::move(fds), /*ours=*/false);
    control_.Post([this, peer, arena, number, mapping = std::move(mapping)]() mutable {
      if (Find(peer) == nullptr || Find(peer)->number != number) {
        // Of a link that is lost; nobody waits any more, or for an arena of the next link.
        if (mapping.ok()) devices_.list.front()->memory->Post([gone = *std::move(mapping)] {});
        return;
      }
      driver_->OnPeerArena(peer, arena, std::move(mapping));
    });
  });
}

void PeerTable::OnSocketClosed(Door::ConnectionId connection) {
  home_.Check();
  if (auto it = socket_peers_.find(connection); it != socket_peers_.end()) {
    Link& link = *Find(it->second);
    socket_peers_.erase(it);
    if (link.ending.has_value()) Lose(link, absl::Status(*link.ending));
    return;
  }
  for (const auto& link : links_) {
    if (link == nullptr || link->socket != connection) continue;
    link->socket.reset();
    if (link->mapped_unsettled) return Settle(*link, "peer.sock closed");
    if (link->state == State::kConnecting) {  // if they refuse us, the stream's end says why
      link->unsaid = Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                           absl::StrCat(link->theirs.peer_socket, " closed"));
      link->unsaid_until = control_.Now() + kPartingTimeout;
      return;
    }
    // What we said there may not have arrived, and arenas that we asked for will not come.
    return LoseOnceRead(
        *link, Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                     absl::StrCat(link->hello.peer_socket, " of ", link->config.node, " closed")));
  }
}

}  // namespace ferry
