// SPDX-License-Identifier: Apache-2.0
// How PeerTable's links begin: how they are dialled and accepted, and how both ends prove who they
// are.
//
//   dialler    introduction ->
//                           <- introduction, with a secret also proof   acceptor
//   with a secret: proof, hello ->
//   without: on the acceptor's peer.sock, where both see the other's uid, nonces and random bytes
//   for the key; then hello ->
//                           <- hello
//
// Until then the acceptor has a Caller, not a Link. A caller that fails loses its own stream and
// disturbs nobody else.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/status.h"
#include "daemon/peer/peer_link.h"
#include "daemon/peer/peer_proof.h"

namespace ferry {
namespace {

constexpr char kMakeSecret[] =
    "make a secret with `head -c 32 /dev/urandom > ferry.secret`, give it to all nodes, and set "
    "peer.secret_file to it";

absl::Status NotProven(const std::string& what) {
  return Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed, what);
}

// "0, 1, 2"; of many ids only the first.
std::string ShownIds(const std::vector<uint64_t>& sorted) {
  constexpr size_t kShown = 16;
  if (sorted.empty()) return "none";
  const size_t shown = std::min(sorted.size(), kShown);
  return absl::StrCat(
      absl::StrJoin(absl::MakeConstSpan(sorted).first(shown), ", "),
      sorted.size() > shown ? absl::StrCat(" and ", sorted.size() - shown, " more") : "");
}

absl::Status ProtocolError(const Reason reason, const std::string& what) {
  return Error(absl::StatusCode::kUnavailable, reason, what);
}

}  // namespace

std::string ReadBootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

bool PeerTable::TrustsUid(uint32_t uid) const {
  return uid == geteuid() || std::find(options_.trusted_uids.begin(), options_.trusted_uids.end(),
                                       uid) != options_.trusted_uids.end();
}

PeerStreamCallbacks PeerTable::CallbacksFor(PeerId peer, uint64_t number) {
  return {[this, peer, number](PeerFrame frame) { OnFrame(peer, number, std::move(frame)); },
          [this, peer, number](absl::Status why) {
            callers_.erase(number);
            if (const auto it = partings_.find(number); it != partings_.end()) EndParting(it);
            if (Find(peer) == nullptr) return;
            Link& link = *Find(peer);
            if (link.number == number && link.stream != nullptr) {
              LoseOnceRead(link, Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                                       absl::StrCat("the link to ", link.config.node,
                                                    " closed: ", why.message())));
            }
          }};
}

PeerIntroduction PeerTable::Introduce() const {
  PeerIntroduction introduction;
  introduction.node = options_.node;
  introduction.incarnation = options_.incarnation;
  introduction.boot_id = boot_id_;
  introduction.uid = geteuid();
  introduction.peer_socket = options_.peer_socket;
  introduction.nonce = RandomBytes(kPeerNonceBytes);
  return introduction;
}

PeerHello PeerTable::MakeHello(PeerId to) const {
  PeerHello hello;
  static_cast<PeerIntroduction&>(hello) = Introduce();
  hello.ucx_version = options_.ucx_version;
  hello.daemon_version = FERRY_VERSION;
  hello.nccl_version = options_.nccl_version;
  hello.network_namespace = ReadNetworkNamespace();
  for (const auto& device : devices_.list) {
    PeerDeviceInfo info{device->id, {}, device->gpu != nullptr};
    info.uuid = device->info().uuid;
    info.name = device->name;
    for (const LinkRoute* const route : routes_) route->Tell(to, *device, hello, info);
    hello.devices.push_back(std::move(info));
  }
  // GPUs that are missing are listed too: the peer compares the ids with its own membership.nodes,
  // where they are ours. What it sends to one of them is refused.
  for (const GlobalDeviceId id : own_ids_) {
    if (devices_.Find(id) != nullptr) continue;
    PeerDeviceInfo& missing = hello.devices.emplace_back(PeerDeviceInfo{id, {}, /*gpu=*/true});
    missing.name = "missing";
  }
  return hello;
}

void PeerTable::SayHello(Link& link, std::string proof) {
  PeerFrame frame;
  frame.proof = std::move(proof);
  frame.hello = MakeHello(link.id);
  link.stream->Send(std::move(frame));
  link.last_sent = control_.Now();
}

void PeerTable::Dial(Link& link, bool visiting) {
  link.number = ++streams_;
  link.state = State::kConnecting;
  link.since = control_.Now();
  link.last_heard = link.last_sent = link.since;
  link.ours = Introduce();
  link.ours.in_reverse = !Dials(link);
  link.visiting = link.ours.visiting = visiting;
  link.theirs = PeerIntroduction();
  link.dialled = true;
  link.stream = dialer_->Dial(link.config.address, CallbacksFor(link.id, link.number));
  PeerFrame frame;
  frame.introduction = link.ours;
  link.stream->Send(std::move(frame));
}

absl::Status PeerTable::CheckIntroduction(const Link& link,
                                          const PeerIntroduction& introduction) const {
  const std::string between =
      absl::StrCat("link between ", options_.node, " and ", link.config.node, ": ");
  const auto bad = [&](Reason reason, const std::string& what) {
    return Error(absl::StatusCode::kFailedPrecondition, reason, between + what);
  };
  if (!kPeerProtocol.Meet(introduction.protocol)) {
    const std::string theirs = Printable(introduction.node);
    return bad(
        Reason::kProtocolVersion,
        absl::StrCat(theirs, " speaks ", introduction.protocol.ToString(),
                     " of the protocol between daemons, ", options_.node, " speaks ",
                     kPeerProtocol.ToString(), "; update ferryd at ",
                     introduction.protocol.newest < kPeerProtocol.oldest ? theirs : options_.node));
  }
  if (introduction.node != link.config.node) {
    return bad(Reason::kConfigInvalid,
               absl::StrCat("the daemon at ", link.config.address, " is '",
                            Printable(introduction.node), "'; check membership.nodes on both"));
  }
  if (!options_.secret.empty()) return absl::OkStatus();
  if (introduction.boot_id != boot_id_) {
    return NotProven(absl::StrCat(between, link.config.node, " is on another host than ",
                                  options_.node, ", and without a shared secret only daemons of ",
                                  "one host find each other; ", kMakeSecret));
  }
  if (!TrustsUid(introduction.uid)) {
    return NotProven(absl::StrCat(
        between, link.config.node, " runs as uid ", introduction.uid, ", which peer.uids of ",
        options_.node, " does not list, and there is no shared secret; list it, or ", kMakeSecret));
  }
  return absl::OkStatus();
}

// Checks that there is a link to the caller `node` and that it is this daemon that dials it
// (`dials`), or that it is not. Fails if the two daemons do not call each other by the same names.
absl::Status PeerTable::CheckRole(const Link* link, const std::string& node, bool dials) {
  if (link != nullptr && Dials(*link) == dials) return absl::OkStatus();
  const std::string between =
      absl::StrCat("link between ", options_.node, " and '", Printable(node), "': ");
  if (link == nullptr) {
    return RefuseStranger(
        node, Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
                    absl::StrCat(between, "'", Printable(node),
                                 "' is not among membership.nodes of ", options_.node)));
  }
  return Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
               absl::StrCat(between, "of these names it is ", dials ? "the caller" : options_.node,
                            " that dials, so the caller takes ", options_.node,
                            " for another node; check membership.nodes on both"));
}

// Checks that somebody here waits for a caller that does not need the link itself. A visit in vain
// is not logged, and the visitor is not listed as a stranger: each peer comes every few seconds.
absl::Status PeerTable::CheckVisit(const Link* link, const std::string& node) const {
  if (link != nullptr && link->wanted && !link->proven) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
               absl::StrCat("link between ", options_.node, " and '", Printable(node),
                            "': nobody at ", options_.node, " waits for it"));
}

absl::Status PeerTable::CheckDevices(const Link& link, const PeerHello& hello) const {
  std::vector<uint64_t> theirs, expected;
  for (const PeerDeviceInfo& device : hello.devices) theirs.push_back(device.id.value());
  for (const GlobalDeviceId id : link.config.devices) expected.push_back(id.value());
  std::sort(theirs.begin(), theirs.end());
  std::sort(expected.begin(), expected.end());
  if (theirs == expected) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kConfigInvalid,
               absl::StrCat("link between ", options_.node, " and ", link.config.node, ": ",
                            link.config.node, " has the global device ids ", ShownIds(theirs),
                            ", and by membership.nodes of ", options_.node, " it would have ",
                            ShownIds(expected), "; membership.nodes must be the same on both"));
}

// --- The daemon that is dialled.

void PeerTable::OnAccepted(std::function<std::unique_ptr<PeerStream>(PeerStreamCallbacks)> accept,
                           std::function<void(absl::Status)> refuse,
                           PeerIntroduction introduction) {
  home_.Check();
  if (leaving_) {
    return refuse(Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                        absl::StrCat("link to ", options_.node, ": it stops")));
  }
  Link* link = FindByNode(introduction.node);
  if (introduction.visiting) {
    const absl::Status awaited = CheckVisit(link, introduction.node);
    if (!awaited.ok()) return refuse(awaited);
  }
  absl::Status wrong = CheckRole(link, introduction.node, introduction.in_reverse);
  if (wrong.ok()) wrong = CheckIntroduction(*link, introduction);
  if (wrong.ok() && introduction.in_reverse && (link->proven || link->error.ok())) {
    return refuse(
        Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
              absl::StrCat("link between ", options_.node, " and ", link->config.node, ": ",
                           options_.node, " dials, and its dials have not failed")));
  }
  if (!wrong.ok()) {
    if (link != nullptr) OnRefused(*link, wrong);
    return refuse(wrong);
  }
  if (callers_.size() == kMostCallers) {
    Refuse(callers_.begin(), Error(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
                                   absl::StrCat("link to ", options_.node, ": ", kMostCallers,
                                                " others have not proven who they are either")));
  }
  const uint64_t number = ++streams_;
  Caller& caller = callers_[number];
  caller = {link->id, accept(CallbacksFor(link->id, number)), Introduce(), std::move(introduction),
            control_.Now()};
  PeerFrame frame;
  frame.introduction = caller.ours;
  if (!options_.secret.empty()) {
    frame.proof = PeerProof(options_.secret, PeerSide::kAcceptor, {caller.theirs, caller.ours});
  }
  caller.stream->Send(std::move(frame));
}

void PeerTable::Refuse(Callers::iterator caller, const absl::Status& why) {
  caller->second.stream->Close(why);
  callers_.erase(caller);
}

void PeerTable::OnCallerFrame(Callers::iterator it, PeerFrame frame) {
  if (frame.empty()) return;  // a sign of life
  Caller& caller = it->second;
  Link& link = *Find(caller.peer);
  absl::Status proven =
      frame.refusal.has_value()
          ? Unproven(link, *frame.refusal)
          : NotProven(absl::StrCat("link between ", options_.node, " and ", link.config.node,
                                   ": the caller did not prove that it is ", link.config.node,
                                   "; peer.secret_file must be the same on all nodes"));
  if (!options_.secret.empty() &&
      SameBytes(frame.proof,
                PeerProof(options_.secret, PeerSide::kDialler, {caller.theirs, caller.ours}))) {
    proven = TakeOver(it, options_.secret);
    if (proven.ok()) return OnFrame(link.id, link.number, std::move(frame));
  } else {
    OnRefused(link, proven);
  }
  Refuse(it, proven);
}

PeerTable::Callers::iterator PeerTable::FindCaller(const PeerSocketHello& hello) {
  if (!options_.secret.empty()) return callers_.end();
  return std::find_if(callers_.begin(), callers_.end(), [&](const auto& entry) {
    const Caller& caller = entry.second;
    return SameBytes(caller.ours.nonce, hello.asked_nonce) &&
           hello.random.size() == kPeerSecretBytes &&
           SameBytes(hello.proof,
                     PeerProof(hello.random, PeerSide::kDialler, {caller.theirs, caller.ours}));
  });
}

// The caller has proven who it is. Its stream becomes the link's, unless another daemon of its name
// is alive. If the result is OK, `it` is erased.
absl::Status PeerTable::TakeOver(Callers::iterator it, absl::string_view material) {
  Caller& caller = it->second;
  Link& link = *Find(caller.peer);
  const bool in_vain = link.stream != nullptr && link.dialled && !link.proven;
  if (in_vain) {
    Lose(link, Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                     absl::StrCat(link.config.node, " came while it was dialled")));
  }
  if (link.stream != nullptr) {
    // The dialler of a link knows best: a second stream from it means that the first one is dead.
    // But a daemon that was started in its name by mistake does not know that.
    if (caller.theirs.incarnation != link.theirs.incarnation && !link.ending.has_value() &&
        control_.Now() < link.last_heard + kLives) {
      const absl::Status second =
          Error(absl::StatusCode::kAlreadyExists, Reason::kConfigInvalid,
                absl::StrCat("link between ", options_.node, " and ", link.config.node, ": ",
                             caller.theirs.incarnation.ToString(), " came while ",
                             link.theirs.incarnation.ToString(),
                             " lives; two daemons have one "
                             "node.name, or it was restarted and this passes by itself"));
      if (std::exchange(link.refused, caller.theirs.incarnation) != caller.theirs.incarnation) {
        FERRY_LOG(warn, "peer.second", LogFields("peer", link.config.node), "{}",
                  std::string(second.message()));
      }
      return second;
    }
    Lose(link, Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                     absl::StrCat(link.config.node, " opened a new link")));
  }
  link.number = it->first;
  link.dialled = false;
  link.stream = std::move(caller.stream);
  link.stream->OnProven();
  link.ours = std::move(caller.ours);
  link.theirs = std::move(caller.theirs);
  link.state = State::kConnecting;
  link.since = link.last_heard = link.last_sent = control_.Now();
  callers_.erase(it);
  Proven(link, material);
  return absl::OkStatus();
}

absl::Time PeerTable::DropLateCallers(absl::Time now) {
  while (!callers_.empty() && callers_.begin()->second.since + kDialTimeout <= now) {
    Refuse(callers_.begin(), NotProven(absl::StrCat("link to ", options_.node,
                                                    ": the caller did not prove who it is "
                                                    "in time")));
  }
  return callers_.empty() ? absl::InfiniteFuture() : callers_.begin()->second.since + kDialTimeout;
}

absl::Status PeerTable::OnKnock(const std::string& node) {
  home_.Check();
  Link* link = FindByNode(node);
  if (const absl::Status wrong = CheckRole(link, node, /*dials=*/true); !wrong.ok()) {
    if (link != nullptr) OnRefused(*link, wrong);
    return wrong;
  }
  if (link->visiting) {
    EndVisit(*link, absl::CancelledError("the other daemon wants the link after all"));
  }
  // Dials once; a daemon that gets no link knocks again.
  if (link->stream == nullptr && control_.Now() >= link->knocked + kKnockPause) {
    link->retry_at = link->knocked = control_.Now();
  }
  return absl::OkStatus();
}

// --- Both daemons.

void PeerTable::Proven(Link& link, absl::string_view material) {
  link.proven = true;
  link.wanted = true;  // also if the other daemon has knocked: it will want the link again
  link.knocked = absl::InfinitePast();
  link.secret = PeerLinkSecret(material, link.dialled ? PeerParties{link.ours, link.theirs}
                                                      : PeerParties{link.theirs, link.ours});
  // Made before the other daemon can ask for it on our peer.sock.
  absl::StatusOr<std::unique_ptr<LinkPage>> page = LinkPage::Create();
  if (page.ok()) link.our_page = *std::move(page);
}

void PeerTable::OnFrame(PeerId peer, uint64_t number, PeerFrame frame) {
  if (auto caller = callers_.find(number); caller != callers_.end()) {
    return OnCallerFrame(caller, std::move(frame));
  }
  if (Find(peer) == nullptr) return;
  Link& link = *Find(peer);
  if (link.number != number || link.stream == nullptr) return;
  if (frame.refusal.has_value()) {
    return Lose(link, Error(frame.refusal->code(), ReasonOf(*frame.refusal),
                            Printable(frame.refusal->message())));
  }
  if (link.state == State::kConnecting) {
    if (frame.empty()) return;  // a daemon that has proven nothing is not kept alive by this
    link.visiting = false;      // the visit was accepted: a link like any other
    if (absl::Status good = OnGreeting(link, frame); !good.ok()) return Reject(link, good);
    if (link.number != number) return;
  } else if (frame.introduction.has_value() || frame.hello.has_value()) {
    return Lose(link, ProtocolError(Reason::kProtocolError,
                                    absl::StrCat(link.config.node, " said hello twice")));
  }
  link.last_heard = control_.Now();
  if (!frame.moved.empty()) OnMoved(link, std::move(frame.moved));
  const bool goodbye = frame.goodbye;
  if (frame.events() > 0) OnEvents(link, std::move(frame));
  if (!goodbye || link.number != number || link.stream == nullptr) return;
  link.goodbye = true;
  LoseOnceRead(link, Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                           absl::StrCat(link.config.node, " stops")));
}

// What may be said before a link is up: first the acceptor's introduction, then the hello.
absl::Status PeerTable::OnGreeting(Link& link, PeerFrame& frame) {
  if (!link.proven && link.theirs.nonce.empty()) {
    if (frame.hello.has_value() || frame.events() > 0 || !frame.introduction.has_value()) {
      return ProtocolError(Reason::kProtocolError,
                           absl::StrCat(link.config.node, " did not introduce itself first"));
    }
    return OnIntroduction(link, frame);
  }
  if (!link.proven || !frame.hello.has_value() || frame.introduction.has_value()) {
    return ProtocolError(Reason::kProtocolError,
                         absl::StrCat(link.config.node, " did not say hello first"));
  }
  static_cast<PeerIntroduction&>(*frame.hello) = link.theirs;
  RETURN_IF_ERROR(CheckDevices(link, *frame.hello));
  OnHello(link, *std::move(frame.hello));
  return absl::OkStatus();
}

// The introduction of the dialled daemon.
absl::Status PeerTable::OnIntroduction(Link& link, const PeerFrame& frame) {
  RETURN_IF_ERROR(CheckIntroduction(link, *frame.introduction));
  link.theirs = *frame.introduction;
  if (options_.secret.empty()) {  // then the proof is on peer.sock, see OnWelcome
    link.random = RandomBytes(kPeerSecretBytes);
    const absl::Status connected = ConnectSocket(link);
    if (connected.ok()) return connected;
    return NotProven(absl::StrCat("link between ", options_.node, " and ", link.config.node,
                                  ": without a shared secret it is proven on peer.sock: ",
                                  connected.message(), "; or ", kMakeSecret));
  }
  const PeerParties parties{link.ours, link.theirs};
  if (!SameBytes(frame.proof, PeerProof(options_.secret, PeerSide::kAcceptor, parties))) {
    return NotProven(absl::StrCat("link between ", options_.node, " and ", link.config.node,
                                  ": the daemon at ", link.config.address,
                                  " did not prove that it has the secret of ", options_.node,
                                  "; peer.secret_file must be the same on all nodes"));
  }
  Proven(link, options_.secret);
  SayHello(link, PeerProof(options_.secret, PeerSide::kDialler, parties));
  return absl::OkStatus();
}

void PeerTable::OnHello(Link& link, PeerHello hello) {
  link.hello = std::move(hello);
  // UCX ends the process for an address that it does not understand.
  if (link.hello.ucx_version != options_.ucx_version) {
    for (PeerDeviceInfo& device : link.hello.devices) device.ucx_addresses.clear();
  }
  link.state = State::kSettling;
  link.since = control_.Now();
  link.mapped_unsettled = true;
  for (LinkRoute* const route : routes_) route->Start(ViewOf(link));
  if (!link.dialled) SayHello(link);
  if (link.socket.has_value()) return Settle(link, std::string(link.mapped_error));
  if (link.hello.boot_id != boot_id_) {
    return Settle(link, absl::StrCat(link.config.node, " is on another host"));
  }
  if (!TrustsUid(link.hello.uid)) {
    return Settle(link, absl::StrCat(link.config.node, " runs as uid ", link.hello.uid,
                                     ", which peer.uids does not list"));
  }
  if (absl::Status connected = ConnectSocket(link); !connected.ok()) {
    Settle(link, std::string(connected.message()));
  }
}

absl::Status PeerTable::ConnectSocket(Link& link) {
  if (link.theirs.peer_socket == options_.peer_socket) {
    return Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                 absl::StrCat("the peer.sock of ", link.config.node, ", ", options_.peer_socket,
                              ", is here that of ", options_.node,
                              " itself: they are in containers of their own, or on hosts with one "
                              "boot id; to share memory, give each a runtime_dir of another name, "
                              "mounted in both"));
  }
  ASSIGN_OR_RETURN(link.socket, hooks_.connect(link.id, link.theirs.peer_socket));
  PeerSocketHello hello{options_.node, link.theirs.nonce, true};
  if (!link.proven) {
    hello.random = link.random;
    hello.proof = PeerProof(link.random, PeerSide::kDialler, {link.ours, link.theirs});
  }
  if (hooks_.send_request(*link.socket, {link.next_sequence++, std::move(hello)})) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
               absl::StrCat("no answer at ", link.theirs.peer_socket));
}

}  // namespace ferry
