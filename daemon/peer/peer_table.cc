// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/peer_table.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/status.h"
#include "daemon/peer/peer_proof.h"

namespace ferry {
namespace {

bool Has(const std::vector<GlobalDeviceId>& devices, GlobalDeviceId device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

std::vector<GlobalDeviceId> DevicesOf(const std::vector<PeerConfig>& peers, PeerId peer) {
  return peer.value() < peers.size() ? peers[peer.value()].devices : std::vector<GlobalDeviceId>();
}

absl::Status NotAwaited(const std::string& own, const std::string& node) {
  return Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
               absl::StrCat("link between ", own, " and '", Printable(node), "': nobody at ", own,
                            " waits for it"));
}

}  // namespace

PeerTable::PeerTable(Executor& control, LocalDevices& devices, SessionTable& sessions, PeerId self,
                     std::vector<PeerConfig> peers, Options options, Hooks hooks)
    : control_(control),
      devices_(devices),
      self_(self),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      routes_(options_, devices, DevicesOf(peers, self), options_),
      partings_(control, hooks_.close),
      own_socket_(hooks_, sessions, lent_, partings_),
      their_sockets_(control, devices, hooks_,
                     [this](PeerId peer, ArenaId arena, auto mapping) {
                       shared_.driver->OnPeerArena(peer, arena, std::move(mapping));
                     }),
      callers_(control, options_),
      strangers_(control),
      shared_{
          .control = control,
          .own = options_,
          .routes = routes_,
          .pages = pages_,
          .lent = lent_,
          .own_socket = own_socket_,
          .their_sockets = their_sockets_,
          .partings = partings_,
          .callbacks = [this](PeerId peer, uint64_t number) { return CallbacksFor(peer, number); },
          .find = [this](PeerId peer) { return Find(peer); },
          .lost = [this] { LookWhoIsLeft(); }} {
  links_.resize(peers.size());
  SetVisitPause();
  for (size_t i = 0; i < peers.size(); ++i) {
    const PeerId peer(static_cast<uint32_t>(i));
    pages_.AddPeer(peer, peers[i].node);
    if (peer == self_) continue;
    links_[i] = std::make_unique<PeerLink>(shared_, peer, std::move(peers[i]),
                                           control_.Now() + shared_.visit_pause + i * kVisitGap);
  }
}

PeerTable::~PeerTable() = default;

PeerLink* PeerTable::FindByNode(const std::string& node) const {
  for (const auto& link : links_) {
    if (link != nullptr && link->config().node == node) return link.get();
  }
  return nullptr;
}

PeerLink* PeerTable::FindByDevice(GlobalDeviceId device) const {
  for (const auto& link : links_) {
    if (link != nullptr && Has(link->config().devices, device)) return link.get();
  }
  return nullptr;
}

void PeerTable::SetVisitPause() {
  shared_.visit_pause = std::max(options_.visit_every, links_.size() * kVisitGap);
}

// --- The daemon's end.

void PeerTable::SayGoodbye(std::function<void()> done) {
  home_.Check();
  shared_.leaving = true;
  gone_ = std::move(done);
  for (const auto& link : links_) {
    if (link != nullptr) link->SayGoodbye();
  }
  LookWhoIsLeft();
}

void PeerTable::LookWhoIsLeft() {
  const bool left = std::any_of(links_.begin(), links_.end(), [](const auto& link) {
    return link != nullptr && link->handshake().is_proven();
  });
  if (!left && gone_) std::exchange(gone_, nullptr)();
}

void PeerTable::Stop() {
  home_.Check();
  stopped_ = shared_.leaving = true;
  gone_ = nullptr;
  const absl::Status why =
      Error(absl::StatusCode::kUnavailable, Reason::kDraining, "this daemon stops");
  callers_.RefuseAll(why);
  partings_.EndAll();
  for (const auto& link : links_) {
    if (link != nullptr) link->Stop(why);
  }
}

// --- Peers that come and leave by a reload. A peer that has left has no link. Whatever comes late
// from its streams, sockets and lanes finds no link, or one with other numbers.

void PeerTable::Add(PeerId peer, PeerConfig config) {
  home_.Check();
  FERRY_CHECK(peer.value() <= links_.size() && peer != self_);
  pages_.AddPeer(peer, config.node);
  if (peer.value() == links_.size()) links_.emplace_back();
  FERRY_CHECK(links_[peer.value()] == nullptr);
  SetVisitPause();
  strangers_.Forget(config.node);  // it may have called before it was known
  FERRY_LOG(info, "peer.added", LogFields("peer", config.node), "to be found at {}",
            config.address);
  links_[peer.value()] = std::make_unique<PeerLink>(shared_, peer, std::move(config),
                                                    control_.Now() + shared_.visit_pause);
}

absl::Status PeerTable::Remove(PeerId peer, bool comes_again) {
  home_.Check();
  PeerLink& link = *Find(peer);
  const std::string& node = link.config().node;
  const absl::Status why =
      Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
            absl::StrCat(LinkBetween(options_, link.config()), node,
                         comes_again ? " has other devices now by" : " is no longer among",
                         " membership.nodes of ", options_.node));
  callers_.RefuseAllOf(peer, why);
  FERRY_LOG(info, "peer.removed", LogFields("peer", node), "{}", std::string(why.message()));
  link.Remove(why);
  links_[peer.value()].reset();
  return why;
}

void PeerTable::Move(PeerId peer, const std::string& address) {
  home_.Check();
  PeerLink& link = *Find(peer);
  const std::string& node = link.config().node;
  link.Move(address,
            Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                  absl::StrCat(LinkBetween(options_, link.config()), "by membership.nodes of ",
                               options_.node, " ", node, " is at ", address, " now")));
}

// --- The driver and operators.

void PeerTable::Want(PeerId peer) {
  home_.Check();
  if (PeerLink* const link = Find(peer)) link->Want();
}

void PeerTable::Send(PeerId peer, std::vector<PeerMessage> messages, bool more) {
  home_.Check();
  PeerLink* const link = Find(peer);
  if (link == nullptr || !link->is_up()) return;
  if (link->hello().boot_id == options_.boot_id) {
    for (const PeerMessage& message : messages) {
      const Offer* offer = std::get_if<Offer>(&message);
      if (offer != nullptr) lent_.Lend(peer, offer->layout);
    }
  }
  link->Say({std::move(messages), {}, 0, more});
}

void PeerTable::OnArenaGone(ArenaId arena) {
  home_.Check();
  for (const PeerId peer : lent_.Take(arena)) Find(peer)->Say({{}, {arena}});
}

void PeerTable::FetchArena(PeerId peer, ArenaId arena, GlobalDeviceId device) {
  home_.Check();
  const PeerLink* const link = Find(peer);
  if (link != nullptr && (their_sockets_.IsOpen(peer) || link->is_ending())) {
    return their_sockets_.Fetch(peer, arena, device);
  }
  control_.Post([this, peer, arena] {
    shared_.driver->OnPeerArena(peer, arena,
                                Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                                      "there is no connection to its owner's peer.sock"));
  });
}

Incarnation PeerTable::IncarnationOf(PeerId peer) const {
  home_.Check();
  if (peer == self_) return options_.incarnation;
  return Find(peer) == nullptr ? Incarnation() : Find(peer)->hello().incarnation;
}

std::string PeerTable::UcxWay(GlobalDeviceId device) const {
  home_.Check();
  if (devices_.Find(device) != nullptr) return routes_.ucx().WayOf(device);
  const PeerDeviceInfo* const theirs = ToldOf(device);
  return theirs == nullptr ? "" : theirs->ucx_way;
}

const PeerDeviceInfo* PeerTable::ToldOf(GlobalDeviceId device) const {
  home_.Check();
  for (const auto& link : links_) {
    if (link == nullptr || !link->is_up()) continue;
    for (const PeerDeviceInfo& theirs : link->hello().devices) {
      if (theirs.id == device) return &theirs;
    }
  }
  return nullptr;
}

bool PeerTable::MayBringOffers(GlobalDeviceId device, absl::Duration settled) const {
  home_.Check();
  const PeerLink* const link = FindByDevice(device);
  return link != nullptr && link->MayBringOffers(settled);
}

void PeerTable::WhenTried(GlobalDeviceId device, std::function<void()> done) {
  home_.Check();
  PeerLink* const link = FindByDevice(device);
  if (stopped_ || link == nullptr || link->is_up()) return done();
  link->WhenTried(std::move(done));
}

std::vector<PeerTable::Row> PeerTable::List() const {
  home_.Check();
  std::vector<Row> rows;
  for (const auto& link : links_) {
    if (link != nullptr) rows.push_back(link->Describe());
  }
  for (const Strangers::Stranger& stranger : strangers_.List()) {
    Row& row = rows.emplace_back();
    row.node = stranger.node;
    row.state = "refused";
    row.error = stranger.why;
  }
  return rows;
}

// --- Callers and knocks.

PeerStreamCallbacks PeerTable::CallbacksFor(PeerId peer, uint64_t number) {
  return {[this, peer, number](PeerFrame frame) {
            if (const Callers::Caller* const caller = callers_.Find(number)) {
              return OnCallerFrame(number, *caller, std::move(frame));
            }
            if (PeerLink* const link = Find(peer)) link->OnFrame(number, std::move(frame));
          },
          [this, peer, number](const absl::Status& why) {
            callers_.Forget(number);
            partings_.End(number);
            if (PeerLink* const link = Find(peer)) link->OnStreamClosed(number, why);
          }};
}

void PeerTable::OnAccepted(std::function<std::unique_ptr<PeerStream>(PeerStreamCallbacks)> accept,
                           std::function<void(absl::Status)> refuse,
                           PeerIntroduction introduction) {
  home_.Check();
  if (shared_.leaving) {
    return refuse(Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                        absl::StrCat("link to ", options_.node, ": it stops")));
  }
  PeerLink* const link = FindByNode(introduction.node);
  // A visit in vain is not logged, and the visitor is not listed as a stranger: each peer comes
  // every few seconds.
  if (introduction.visiting && (link == nullptr || !link->is_awaited())) {
    return refuse(NotAwaited(options_.node, introduction.node));
  }
  const PeerConfig* const peer = link == nullptr ? nullptr : &link->config();
  absl::Status wrong = CheckRole(options_, peer, introduction.node, introduction.in_reverse);
  if (wrong.ok()) wrong = CheckIntroduction(options_, *peer, introduction);
  if (wrong.ok() && introduction.in_reverse && !link->has_failed()) {
    return refuse(Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                        absl::StrCat(LinkBetween(options_, *peer), options_.node,
                                     " dials, and its dials have not failed")));
  }
  if (!wrong.ok()) {
    if (link != nullptr) {
      link->OnRefused(wrong);
    } else {
      strangers_.Add(introduction.node, wrong);
    }
    return refuse(wrong);
  }
  callers_.MakeRoom();
  const uint64_t number = ++shared_.streams;
  callers_.Add(number, link->id(), accept(CallbacksFor(link->id(), number)),
               std::move(introduction));
}

absl::Status PeerTable::OnKnock(const std::string& node) {
  home_.Check();
  PeerLink* const link = FindByNode(node);
  const PeerConfig* const peer = link == nullptr ? nullptr : &link->config();
  const absl::Status wrong = CheckRole(options_, peer, node, /*dials=*/true);
  if (link == nullptr) {
    strangers_.Add(node, wrong);
  } else if (!wrong.ok()) {
    link->OnRefused(wrong);
  } else {
    link->OnKnocked();
  }
  return wrong;
}

void PeerTable::OnCallerFrame(uint64_t number, const Callers::Caller& caller, PeerFrame frame) {
  if (frame.empty()) return;  // a sign of life
  PeerLink& link = *Find(caller.peer);
  const std::string& node = link.config().node;
  absl::Status proven =
      frame.refusal.has_value()
          ? NotProven(absl::StrCat("a caller that did not prove that it is ", node,
                                   " refused the link: ", Printable(frame.refusal->message())))
          : NotProven(absl::StrCat(LinkBetween(options_, link.config()),
                                   "the caller did not prove that it is ", node,
                                   "; peer.secret_file must be the same on all nodes"));
  if (callers_.IsProof(caller, frame)) {
    proven = TakeOver(number, options_.secret);
    if (proven.ok()) return link.OnFrame(number, std::move(frame));
  } else {
    link.OnRefused(proven);
  }
  callers_.Refuse(number, proven);
}

absl::Status PeerTable::TakeOver(uint64_t number, const std::string& material) {
  const Callers::Caller& caller = *callers_.Find(number);
  PeerLink& link = *Find(caller.peer);
  RETURN_IF_ERROR(link.GiveWay(caller.theirs.incarnation));
  link.TakeOver(number, callers_.Take(number), material);
  return absl::OkStatus();
}

// --- Lanes.

void PeerTable::OnTcpOpened(PeerId peer, uint64_t link_number, const absl::Status& status) {
  home_.Check();
  PeerLink* const link = Find(peer);
  if (link != nullptr && routes_.tcp().OnOpened(peer, link_number, status)) link->GoUp();
}

void PeerTable::OnUcxMoved(GlobalDeviceId device, std::optional<PeerId> to) {
  home_.Check();
  for (const auto& link : links_) {
    if (link != nullptr && (!to.has_value() || link->id() == *to)) link->SayMoved(device);
  }
}

// --- peer.sock.

void PeerTable::OnSocketRequest(Door::ConnectionId connection, const Credentials& credentials,
                                PeerSocketRequest request) {
  home_.Check();
  if (const auto* hello = std::get_if<PeerSocketHello>(&request.body)) {
    return OnSocketHello(connection, credentials, request.sequence, *hello);
  }
  const std::optional<PeerId> peer = own_socket_.PeerOf(connection);
  if (!peer.has_value()) {
    return own_socket_.Refuse(connection, credentials, request.sequence,
                              Error(absl::StatusCode::kPermissionDenied, Reason::kProtocolError,
                                    "peer.sock: say hello first"));
  }
  PeerLink& link = *Find(*peer);
  if (auto* frame = std::get_if<PeerFrame>(&request.body)) return link.OnEvents(std::move(*frame));
  own_socket_.Share(connection, *peer, link.config().node, request.sequence,
                    std::get<GetArena>(request.body).arena);
}

void PeerTable::OnSocketHello(Door::ConnectionId connection, const Credentials& credentials,
                              uint64_t sequence, const PeerSocketHello& hello) {
  PeerSocketWelcome welcome;
  PeerLink* link = FindByNode(hello.node);
  const bool trusted = TrustsUid(credentials.uid);
  const std::optional<uint64_t> caller = trusted ? callers_.FindProven(hello) : std::nullopt;
  if (caller.has_value()) {
    link = Find(callers_.Find(*caller)->peer);
    welcome.random = RandomBytes(kPeerSecretBytes);
    if (absl::Status taken = TakeOver(*caller, hello.random + welcome.random); !taken.ok()) {
      callers_.Refuse(*caller, taken);
      return own_socket_.Refuse(connection, credentials, sequence, std::move(taken));
    }
  }
  const LinkPage* const page = link == nullptr ? nullptr : pages_.Ours(link->id());
  if (!trusted || page == nullptr || !link->handshake().is_proven() ||
      !SameBytes(link->handshake().ours().nonce, hello.asked_nonce)) {
    return own_socket_.Refuse(
        connection, credentials, sequence,
        Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
              absl::StrCat("peer.sock of ", options_.node,
                           ": the caller is not the daemon at the other end of a link, or its uid ",
                           credentials.uid, " is not trusted (peer.uids)")));
  }
  own_socket_.Welcome(connection, link->id(), sequence, std::move(welcome), *page);
}

void PeerTable::OnSocketResponse(PeerId peer, Door::ConnectionId connection,
                                 PeerSocketResponse response, ReceivedFds fds) {
  home_.Check();
  PeerLink* const link = Find(peer);
  if (link == nullptr || !their_sockets_.Is(connection, peer)) return;
  link->OnTheirSocketAnswer(std::move(response), std::move(fds));
}

void PeerTable::OnSocketClosed(Door::ConnectionId connection) {
  home_.Check();
  if (const std::optional<PeerId> peer = own_socket_.PeerOf(connection)) {
    own_socket_.Forget(connection);
    return Find(*peer)->OnOwnSocketClosed();
  }
  if (const std::optional<PeerId> peer = their_sockets_.PeerOf(connection)) {
    Find(*peer)->OnTheirSocketClosed();
  }
}

absl::Time PeerTable::OnTime(absl::Time now) {
  home_.Check();
  if (shared_.leaving) return absl::InfiniteFuture();
  absl::Time next = std::min(callers_.OnTime(now), partings_.OnTime(now));
  for (const auto& link : links_) {
    if (link != nullptr) next = std::min(next, link->OnTime(now));
  }
  return next;
}

}  // namespace ferry
