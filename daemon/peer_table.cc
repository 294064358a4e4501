// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer_table.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"
#include "device/host/host_memory.h"

namespace ferry {
namespace {

constexpr uint32_t kProtocol = 1;
constexpr absl::Duration kBackoffMin = absl::Milliseconds(100);
constexpr absl::Duration kBackoffMax = absl::Seconds(3);

std::string ReadBootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string NewSecret() {
  std::string secret(16, '\0');
  FERRY_CHECK(getrandom(secret.data(), secret.size(), 0) == static_cast<ssize_t>(secret.size()));
  return secret;
}

}  // namespace

struct PeerTable::Link {
  PeerId id;
  PeerConfig config;
  State state = State::kIdle;
  bool wanted = false;
  uint64_t number = 0;  // counts the links to this peer; callbacks of older ones are ignored
  std::unique_ptr<PeerStream> stream;
  std::string secret;   // ours, of this link
  PeerHello hello;      // theirs
  absl::Time since;     // of the state
  absl::Time last_heard;
  absl::Time last_sent;
  absl::Time retry_at = absl::InfiniteFuture();
  absl::Duration backoff = kBackoffMin;
  bool knocking = false;
  absl::Status error;
  std::vector<PeerMessage> early;  // messages that came before we were up

  // Reading their arenas: our connection to their peer.sock.
  std::optional<Door::ConnectionId> socket;
  uint64_t next_sequence = 1;
  absl::flat_hash_map<uint64_t, ArenaId> asked;
  bool mapped = false;
  std::string mapped_error;
  // Their reading of ours: the page that tells them we lost the link, and what they may ask for.
  std::shared_ptr<LinkPage> our_page;
  absl::flat_hash_set<ArenaId> granted;
  ArenaId last_granted;
};

PeerTable::PeerTable(Executor& control, LocalDevices& devices, SessionTable& sessions, PeerId self,
                     std::vector<PeerConfig> peers, Options options, Hooks hooks)
    : control_(control),
      devices_(devices),
      sessions_(sessions),
      self_(self),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      boot_id_(ReadBootId()) {
  for (size_t i = 0; i < peers.size(); ++i) {
    links_.push_back(nullptr);
    if (PeerId(static_cast<uint32_t>(i)) == self_) continue;
    links_.back() = std::make_unique<Link>();
    links_.back()->id = PeerId(static_cast<uint32_t>(i));
    links_.back()->config = std::move(peers[i]);
  }
  MutexLock lock(pages_mutex_);
  pages_.resize(links_.size());
}

PeerTable::~PeerTable() = default;

void PeerTable::Connect(TransferDriver* driver, PeerDialer* dialer) {
  driver_ = driver;
  dialer_ = dialer;
}

bool PeerTable::Dials(const Link& link) const { return options_.node < link.config.node; }

bool PeerTable::TrustsUid(uint32_t uid) const {
  return uid == geteuid() || std::find(options_.trusted_uids.begin(), options_.trusted_uids.end(), uid) !=
                                 options_.trusted_uids.end();
}

PeerTable::Link* PeerTable::FindByNode(const std::string& node) {
  for (const auto& link : links_) {
    if (link != nullptr && link->config.node == node) return link.get();
  }
  return nullptr;
}

void PeerTable::Want(PeerId peer) {
  Link& link = *links_[peer.value()];
  if (link.wanted) return;
  link.wanted = true;
  if (link.state == State::kIdle || link.state == State::kLost) link.retry_at = control_.Now();
}

PeerStreamCallbacks PeerTable::CallbacksFor(PeerId peer) {
  const uint64_t number = links_[peer.value()]->number;
  return {[this, peer, number](PeerFrame frame) { OnFrame(peer, number, std::move(frame)); },
          [this, peer, number](absl::Status why) {
            Link& link = *links_[peer.value()];
            if (link.number == number && link.stream != nullptr) {
              Lose(link, Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                               absl::StrCat("the link to ", link.config.node, " closed: ", why.message())));
            }
          }};
}

void PeerTable::Dial(Link& link) {
  ++link.number;
  link.state = State::kConnecting;
  link.since = control_.Now();
  link.last_heard = link.since;
  link.stream = dialer_->Dial(link.config.address, CallbacksFor(link.id));
  SayHello(link);
}

void PeerTable::SayHello(Link& link) {
  // Before the hello is out: with its secret the other daemon may be at peer.sock before its own hello is here.
  link.secret = NewSecret();
  absl::StatusOr<std::unique_ptr<LinkPage>> page = LinkPage::Create();
  if (page.ok()) link.our_page = *std::move(page);
  PeerFrame frame;
  frame.hello = MakeHello(link);
  link.stream->Send(std::move(frame));
  link.last_sent = control_.Now();
}

PeerHello PeerTable::MakeHello(Link& link) const {
  PeerHello hello;
  hello.protocol_min = hello.protocol_max = kProtocol;
  hello.node = options_.node;
  hello.incarnation = options_.incarnation;
  hello.boot_id = boot_id_;
  hello.uid = geteuid();
  hello.peer_socket = options_.peer_socket;
  hello.link_secret = link.secret;
  hello.ucx_version = options_.ucx_version;
  hello.daemon_version = FERRY_VERSION;
  for (const auto& device : devices_.list) {
    PeerDeviceInfo info{device->id, {}};
    if (device->ucx != nullptr) info.ucx_addresses = device->ucx->addresses();
    hello.devices.push_back(std::move(info));
  }
  return hello;
}

absl::Status PeerTable::CheckHello(const Link& link, const PeerHello& hello) const {
  const auto bad = [&](Reason reason, const std::string& what) {
    return Error(absl::StatusCode::kFailedPrecondition, reason,
                 absl::StrCat("link between ", options_.node, " and ", link.config.node, ": ", what));
  };
  if (hello.protocol_min > kProtocol || hello.protocol_max < kProtocol) {
    return bad(Reason::kProtocolVersion,
               absl::StrCat("it speaks versions ", hello.protocol_min, " to ", hello.protocol_max,
                            ", this daemon speaks ", kProtocol));
  }
  if (hello.node != link.config.node) {
    return bad(Reason::kConfigInvalid,
               absl::StrCat("the daemon at ", link.config.address, " is '", hello.node,
                            "'; check membership.nodes on both"));
  }
  std::vector<GlobalDeviceId> theirs;
  for (const PeerDeviceInfo& device : hello.devices) theirs.push_back(device.id);
  std::vector<GlobalDeviceId> expected = link.config.devices;
  std::sort(theirs.begin(), theirs.end());
  std::sort(expected.begin(), expected.end());
  if (theirs != expected) {
    return bad(Reason::kConfigInvalid,
               "its global device ids are not those of our membership.nodes; the lists must be the same");
  }
  return absl::OkStatus();
}

void PeerTable::OnAccepted(std::function<std::unique_ptr<PeerStream>(PeerStreamCallbacks)> accept,
                           std::function<void(absl::Status)> refuse, PeerHello hello) {
  Link* link = FindByNode(hello.node);
  if (link == nullptr || Dials(*link)) {
    return refuse(Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
                        absl::StrCat("link to ", options_.node, ": '", hello.node, "' ",
                                     link == nullptr ? "is not among its membership.nodes"
                                                     : "must be dialled, it knocks")));
  }
  if (absl::Status checked = CheckHello(*link, hello); !checked.ok()) {
    FERRY_LOG(warn, "peer.refused", "{}", std::string(checked.message()));
    link->error = checked;
    return refuse(checked);
  }
  // The dialler knows best: a second link from it means that the first is dead.
  if (link->stream != nullptr) {
    Lose(*link, Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                      absl::StrCat(link->config.node, " opened a new link")));
  }
  ++link->number;
  link->state = State::kConnecting;
  link->since = link->last_heard = control_.Now();
  link->wanted = true;
  link->stream = accept(CallbacksFor(link->id));
  SayHello(*link);
  OnHello(*link, std::move(hello));
}

absl::Status PeerTable::OnKnock(const std::string& node) {
  Link* link = FindByNode(node);
  if (link == nullptr || !Dials(*link)) {
    return Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
                 absl::StrCat("knock at ", options_.node, ": '", node, "' is not a node it dials"));
  }
  link->wanted = true;
  if (link->stream == nullptr) link->retry_at = control_.Now();
  return absl::OkStatus();
}

void PeerTable::OnFrame(PeerId peer, uint64_t number, PeerFrame frame) {
  Link& link = *links_[peer.value()];
  if (link.number != number || link.stream == nullptr) return;
  link.last_heard = control_.Now();
  if (frame.hello.has_value()) {
    if (link.state != State::kConnecting) {
      return Lose(link, Error(absl::StatusCode::kUnavailable, Reason::kProtocolError,
                              absl::StrCat(link.config.node, " said hello twice")));
    }
    if (absl::Status checked = CheckHello(link, *frame.hello); !checked.ok()) return Lose(link, checked);
    OnHello(link, *std::move(frame.hello));
  } else if (link.state == State::kConnecting) {
    return Lose(link, Error(absl::StatusCode::kUnavailable, Reason::kProtocolError,
                            absl::StrCat(link.config.node, " did not say hello first")));
  }
  for (const ArenaId arena : frame.arenas_gone) driver_->OnPeerArenaGone(peer, arena);
  if (frame.messages.empty()) return;
  if (link.state == State::kUp) {
    driver_->OnPeerMessages(peer, std::move(frame.messages));
  } else {
    for (PeerMessage& message : frame.messages) link.early.push_back(std::move(message));
  }
}

void PeerTable::OnHello(Link& link, PeerHello hello) {
  link.hello = std::move(hello);
  link.state = State::kSettling;
  link.since = control_.Now();
  if (link.hello.boot_id != boot_id_) {
    return Settle(link, absl::StrCat(link.config.node, " is on another host"));
  }
  if (!TrustsUid(link.hello.uid)) {
    return Settle(link, absl::StrCat(link.config.node, " runs as uid ", link.hello.uid,
                                     ", which peer.uids does not list"));
  }
  absl::StatusOr<Door::ConnectionId> socket = hooks_.connect(link.id, link.hello.peer_socket);
  if (!socket.ok()) return Settle(link, std::string(socket.status().message()));
  link.socket = *socket;
  if (!hooks_.send_request(*socket, {link.next_sequence++,
                                     PeerSocketHello{options_.node, link.hello.link_secret}})) {
    Settle(link, absl::StrCat("no answer at ", link.hello.peer_socket));
  }
}

void PeerTable::Settle(Link& link, std::string mapped_error) {
  if (link.state != State::kSettling) return;
  link.mapped = mapped_error.empty();
  link.mapped_error = std::move(mapped_error);
  link.state = State::kUp;
  link.since = control_.Now();
  link.backoff = kBackoffMin;
  link.error = absl::OkStatus();

  const bool same_user = link.hello.boot_id == boot_id_ && link.hello.uid == geteuid();
  std::string ucx_error;
  bool ucx = false;
  for (const auto& device : devices_.list) {
    if (device->ucx == nullptr) continue;
    for (const PeerDeviceInfo& theirs : link.hello.devices) {
      // "shm" only works within one host and user; "net" works wherever there is a network.
      const UcxAddressBlob* chosen = nullptr;
      const auto has_kind = [&](const std::string& kind) {
        const auto& ours = device->ucx->addresses();
        return std::any_of(ours.begin(), ours.end(),
                           [&](const UcxAddressBlob& blob) { return blob.kind == kind; });
      };
      for (const UcxAddressBlob& blob : theirs.ucx_addresses) {
        if (!has_kind(blob.kind) || (blob.kind == "shm" && !same_user)) continue;
        if (chosen == nullptr || blob.kind == "shm") chosen = &blob;
      }
      if (chosen == nullptr) continue;
      ucx = true;
      device->lane->Post([transport = device->ucx.get(), peer = link.id, id = theirs.id,
                          blob = *chosen] { transport->AddPeer(peer, id, blob); });
    }
  }
  if (!ucx) {
    ucx_error = options_.ucx_version.empty() ? options_.ucx_missing
                                             : absl::StrCat(link.config.node, " offers no UCX address we can use");
  }
  RouteTable routes(kRoutes);
  routes[static_cast<int>(Route::kLocal)].why = "the devices belong to two daemons";
  routes[static_cast<int>(Route::kMapped)] = {link.mapped, link.mapped_error};
  routes[static_cast<int>(Route::kUcx)] = {ucx, ucx_error};
  routes[static_cast<int>(Route::kNccl)].why = "host devices have no NCCL";
  FlightRecorder::Get().Record("peer.up", link.id.value(), link.hello.incarnation.value(), link.mapped,
                               link.config.node);
  FERRY_LOG(info, "peer.up", "{} {} mapped {} ucx {}", link.config.node, link.hello.incarnation.ToString(),
            link.mapped ? "yes" : link.mapped_error, ucx ? "yes" : ucx_error);
  driver_->OnPeerUp(link.id, std::move(routes));
  if (!link.early.empty()) driver_->OnPeerMessages(link.id, std::exchange(link.early, {}));
}

void PeerTable::Lose(Link& link, const absl::Status& why) {
  const bool established = link.state == State::kUp;
  FlightRecorder::Get().Record("peer.lost", link.id.value(), established, 0, why.message());
  FERRY_LOG(warn, "peer.lost", "{}: {}", link.config.node, std::string(why.message()));
  // First of all: whoever still copies from our arenas must not believe what it reads from here on.
  if (link.our_page != nullptr) link.our_page->Revoke();
  link.our_page.reset();
  if (link.stream != nullptr) link.stream->Close(why);
  link.stream.reset();
  ++link.number;
  link.state = State::kLost;
  link.since = control_.Now();
  link.error = why;
  link.mapped = false;
  link.early.clear();
  link.retry_at = link.wanted ? control_.Now() + link.backoff : absl::InfiniteFuture();
  link.backoff = std::min(link.backoff * 2, kBackoffMax);
  CloseSockets(link);
  if (established) {
    for (const auto& device : devices_.list) {
      if (device->ucx == nullptr) continue;
      device->lane->Post([transport = device->ucx.get(), peer = link.id, why] {
        transport->RemovePeer(peer, why);
      });
    }
  }
  driver_->OnPeerLost(link.id, why, established);
}

void PeerTable::CloseSockets(Link& link) {
  if (link.socket.has_value()) hooks_.close(*link.socket);
  link.socket.reset();
  link.asked.clear();
  {
    MutexLock lock(pages_mutex_);
    pages_[link.id.value()].reset();
  }
  for (auto it = socket_peers_.begin(); it != socket_peers_.end();) {
    auto here = it++;
    if (here->second != link.id) continue;
    hooks_.close(here->first);
    socket_peers_.erase(here);
  }
  for (const ArenaId arena : link.granted) {
    auto it = granted_to_.find(arena);
    if (it == granted_to_.end()) continue;
    std::erase(it->second, link.id);
    if (it->second.empty()) granted_to_.erase(it);
  }
  link.granted.clear();
  link.last_granted = ArenaId();
}

void PeerTable::Send(PeerId peer, std::vector<PeerMessage> messages) {
  Link& link = *links_[peer.value()];
  if (link.state != State::kUp) return;  // the engine hears of the loss and ends what this was about
  for (const PeerMessage& message : messages) {
    const Offer* offer = std::get_if<Offer>(&message);
    if (offer == nullptr || link.hello.boot_id != boot_id_) continue;
    for (const Range& range : offer->ranges) {
      if (range.arena == link.last_granted || !link.granted.insert(range.arena).second) continue;
      link.last_granted = range.arena;
      granted_to_[range.arena].push_back(peer);
    }
  }
  link.last_sent = control_.Now();
  link.stream->Send({std::nullopt, std::move(messages), {}});
}

void PeerTable::OnArenaGone(ArenaId arena) {
  auto it = granted_to_.find(arena);
  if (it == granted_to_.end()) return;
  for (const PeerId peer : it->second) {
    Link& link = *links_[peer.value()];
    link.granted.erase(arena);
    if (link.last_granted == arena) link.last_granted = ArenaId();
    if (link.state == State::kUp) link.stream->Send({std::nullopt, {}, {arena}});
  }
  granted_to_.erase(it);
}

void PeerTable::FetchArena(PeerId peer, ArenaId arena) {
  Link& link = *links_[peer.value()];
  const uint64_t sequence = link.next_sequence++;
  if (!link.socket.has_value() || !hooks_.send_request(*link.socket, {sequence, GetArena{arena}})) {
    control_.Post([this, peer, arena] {
      driver_->OnPeerArena(peer, arena,
                           Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                                 "peer.sock of the owner does not answer"));
    });
    return;
  }
  link.asked[sequence] = arena;
}

absl::Status PeerTable::StillValid(PeerId peer) const {
  if (peer == self_) return absl::OkStatus();
  std::shared_ptr<LinkPage> page;
  {
    MutexLock lock(pages_mutex_);
    page = pages_[peer.value()];
  }
  if (page != nullptr && !page->Revoked()) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
               absl::StrCat(links_[peer.value()]->config.node, " gave up the link during the copy"));
}

void PeerTable::OnSocketRequest(Door::ConnectionId connection, const Credentials& credentials,
                                PeerSocketRequest request) {
  const auto refuse = [&](Reason reason, const std::string& text) {
    PeerSocketResponse response;
    response.sequence = request.sequence;
    response.error = Error(absl::StatusCode::kPermissionDenied, reason, text);
    FERRY_LOG(warn, "peer_socket.refused", "pid {} uid {}: {}", credentials.pid, credentials.uid, text);
    hooks_.send_response(connection, response, {});
    hooks_.close(connection);
    socket_peers_.erase(connection);
  };
  if (const auto* hello = std::get_if<PeerSocketHello>(&request.body)) {
    Link* link = FindByNode(hello->node);
    if (link == nullptr || link->secret.empty() || link->secret != hello->link_secret ||
        link->stream == nullptr || link->our_page == nullptr || !TrustsUid(credentials.uid)) {
      return refuse(Reason::kNotAllowed,
                    absl::StrCat("peer.sock of ", options_.node,
                                 ": the caller is not the daemon at the other end of a link, or its uid ",
                                 credentials.uid, " is not trusted (peer.uids)"));
    }
    socket_peers_[connection] = link->id;
    hooks_.send_response(connection, {request.sequence, absl::OkStatus(), PeerSocketWelcome{}},
                         {link->our_page->memfd()});
    return;
  }
  auto it = socket_peers_.find(connection);
  if (it == socket_peers_.end()) return refuse(Reason::kProtocolError, "peer.sock: say hello first");
  const ArenaId id = std::get<GetArena>(request.body).arena;
  Link& link = *links_[it->second.value()];
  Arena* arena = link.granted.contains(id) ? sessions_.FindArena(id) : nullptr;
  PeerSocketResponse response;
  response.sequence = request.sequence;
  if (arena == nullptr) {
    response.error = Error(absl::StatusCode::kNotFound, Reason::kArenaNotFound,
                           absl::StrCat(id.ToString(), " was not offered to ", link.config.node));
    hooks_.send_response(connection, response, {});
    return;
  }
  response.body = ArenaGranted{id, arena->bytes};
  hooks_.send_response(connection, response, {arena->mapping->fd()});
}

void PeerTable::OnSocketResponse(PeerId peer, Door::ConnectionId connection, PeerSocketResponse response,
                                 std::vector<UniqueFd> fds) {
  Link& link = *links_[peer.value()];
  if (link.socket != connection) return;
  if (link.state == State::kSettling) {
    if (!response.error.ok()) return Settle(link, std::string(response.error.message()));
    if (!std::holds_alternative<PeerSocketWelcome>(response.body) || fds.size() != 1) {
      return Settle(link, absl::StrCat(link.hello.peer_socket, " gave a wrong answer"));
    }
    absl::StatusOr<std::unique_ptr<LinkPage>> page = LinkPage::Map(std::move(fds[0]));
    if (!page.ok()) return Settle(link, std::string(page.status().message()));
    {
      MutexLock lock(pages_mutex_);
      pages_[peer.value()] = *std::move(page);
    }
    return Settle(link, "");
  }
  auto it = link.asked.find(response.sequence);
  if (it == link.asked.end()) return;
  const ArenaId arena = it->second;
  link.asked.erase(it);
  const auto* granted = std::get_if<ArenaGranted>(&response.body);
  if (!response.error.ok() || granted == nullptr || fds.size() != 1) {
    driver_->OnPeerArena(peer, arena,
                         response.error.ok() ? Error(absl::StatusCode::kInternal, Reason::kProtocolError,
                                                     "a wrong answer from peer.sock")
                                             : response.error);
    return;
  }
  // Mapping may block; it belongs to a memory thread.
  devices_.list.front()->memory->Post([this, peer, arena, bytes = granted->bytes, fd = std::move(fds[0]),
                                       number = link.number]() mutable {
    auto mapping = HostMapping::Map(std::move(fd), bytes, HostMapping::Access::kReadOnly);
    control_.Post([this, peer, arena, number, mapping = std::move(mapping)]() mutable {
      if (links_[peer.value()]->number != number && mapping.ok()) {
        // Of a link that is lost; nobody waits any more.
        devices_.list.front()->memory->Post([gone = *std::move(mapping)] {});
        return;
      }
      driver_->OnPeerArena(peer, arena, std::move(mapping));
    });
  });
}

void PeerTable::OnSocketClosed(Door::ConnectionId connection) {
  socket_peers_.erase(connection);
  for (const auto& link : links_) {
    if (link == nullptr || link->socket != connection) continue;
    link->socket.reset();
    if (link->state == State::kSettling) return Settle(*link, "peer.sock closed");
    // The owner's process has gone, or gave us up: the link says the same in a moment.
    for (const auto& [sequence, arena] : std::exchange(link->asked, {})) {
      driver_->OnPeerArena(link->id, arena,
                           Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                                 "peer.sock of the owner closed"));
    }
    return;
  }
}

absl::Time PeerTable::OnTime(absl::Time now) {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& entry : links_) {
    if (entry == nullptr) continue;
    Link& link = *entry;
    if (link.stream != nullptr) {
      const absl::Duration patience = link.state == State::kConnecting ? kDialTimeout : kSilence;
      if (now >= link.last_heard + patience) {
        Lose(link, Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                         absl::StrCat(link.config.node, " at ", link.config.address, " was silent for ",
                                      absl::FormatDuration(patience))));
      } else {
        if (link.state == State::kSettling && now >= link.since + kSocketTimeout) {
          Settle(link, absl::StrCat("no answer at ", link.hello.peer_socket));
        }
        if (now >= link.last_sent + kHeartbeat) {
          link.stream->Send({});
          link.last_sent = now;
        }
        next = std::min({next, link.last_heard + patience, link.last_sent + kHeartbeat});
        if (link.state == State::kSettling) next = std::min(next, link.since + kSocketTimeout);
      }
    }
    if (link.stream == nullptr && !link.knocking && now >= link.retry_at) {
      link.retry_at = absl::InfiniteFuture();
      if (Dials(link)) {
        Dial(link);
        next = std::min(next, now + kHeartbeat);
      } else {
        link.knocking = true;
        dialer_->Knock(link.config.address, options_.node, [this, peer = link.id](absl::Status status) {
          Link& link = *links_[peer.value()];
          link.knocking = false;
          if (link.stream != nullptr) return;
          if (!status.ok()) {
            link.error = Annotate(status, absl::StrCat("knock at ", link.config.node));
            driver_->OnPeerLost(peer, link.error, false);
          }
          // Also after a good answer: the dial it promised may fail.
          link.retry_at = control_.Now() + link.backoff;
          link.backoff = std::min(link.backoff * 2, kBackoffMax);
        });
      }
    }
    if (link.stream == nullptr) next = std::min(next, link.retry_at);
  }
  return next;
}

std::vector<PeerTable::Row> PeerTable::List() const {
  constexpr const char* kNames[] = {"idle", "connecting", "connecting", "up", "lost"};
  std::vector<Row> rows;
  for (const auto& link : links_) {
    if (link == nullptr) continue;
    Row row;
    row.node = link->config.node;
    row.address = link->config.address;
    row.state = kNames[static_cast<int>(link->state)];
    if (link->state == State::kUp) row.incarnation = link->hello.incarnation;
    row.error = link->state == State::kUp ? (link->mapped ? "" : "mapped: " + link->mapped_error)
                                          : std::string(link->error.message());
    row.mapped = link->mapped;
    row.devices = link->config.devices;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace ferry
