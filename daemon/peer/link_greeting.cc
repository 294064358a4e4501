// SPDX-License-Identifier: Apache-2.0
// What is said and heard on a link: first the proof and the hellos (Handshake says in which order),
// then, when it is known which routes there are, events.
#include <string>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/status.h"
#include "daemon/peer/peer_link.h"
#include "daemon/peer/peer_proof.h"
#include "transfer/route_table.h"

namespace ferry {
namespace {

absl::Status SaidWrong(const std::string& what) {
  return Error(absl::StatusCode::kUnavailable, Reason::kProtocolError, what);
}

absl::flat_hash_set<GlobalDeviceId> GpusOf(const PeerHello& hello) {
  absl::flat_hash_set<GlobalDeviceId> gpus;
  for (const PeerDeviceInfo& device : hello.devices) {
    if (device.gpu) gpus.insert(device.id);
  }
  return gpus;
}

}  // namespace

absl::Status PeerLink::GiveWay(Incarnation caller) {
  home_.Check();
  const auto superseded = [](const std::string& what) {
    return Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, what);
  };
  const bool in_vain = stream_ != nullptr && handshake_.we_dialled() && !handshake_.is_proven();
  if (in_vain) Lose(superseded(absl::StrCat(config_.node, " came while it was dialled")));
  if (stream_ == nullptr) return absl::OkStatus();
  // The dialler of a link knows best: a second stream from it means that the first one is dead.
  // But a daemon that was started in its name by mistake does not know that.
  const Incarnation lives = handshake_.theirs().incarnation;
  if (caller != lives && !ending_.has_value() && shared_.control.Now() < last_heard_ + kLives) {
    const absl::Status second =
        Error(absl::StatusCode::kAlreadyExists, Reason::kConfigInvalid,
              absl::StrCat(LinkBetween(shared_.own, config_), caller.ToString(), " came while ",
                           lives.ToString(),
                           " lives; two daemons have one "
                           "node.name, or it was restarted and this passes by itself"));
    if (std::exchange(refused_, caller) != caller) {
      FERRY_LOG(warn, "peer.second", LogFields("peer", config_.node), "{}",
                std::string(second.message()));
    }
    return second;
  }
  Lose(superseded(absl::StrCat(config_.node, " opened a new link")));
  return absl::OkStatus();
}

void PeerLink::TakeOver(uint64_t number, Callers::Caller caller, absl::string_view material) {
  home_.Check();
  number_ = number;
  stream_ = std::move(caller.stream);
  stream_->OnProven();
  state_ = State::kConnecting;
  since_ = last_heard_ = last_sent_ = shared_.control.Now();
  handshake_.Accept(caller, material);
  Proven();
}

void PeerLink::Proven() {
  redial_.OnProven();
  // Made before the other daemon can ask for it on our peer.sock.
  shared_.pages.Make(id_);
}

void PeerLink::OnFrame(uint64_t number, PeerFrame frame) {
  home_.Check();
  if (number_ != number || stream_ == nullptr) return;
  if (frame.refusal.has_value()) {
    return Lose(Error(frame.refusal->code(), ReasonOf(*frame.refusal),
                      Printable(frame.refusal->message())));
  }
  if (state_ == State::kConnecting) {
    if (frame.empty()) return;  // a daemon that has proven nothing is not kept alive by this
    visiting_ = false;          // the visit was accepted: a link like any other
    if (absl::Status good = OnGreeting(frame); !good.ok()) return Reject(good);
    if (number_ != number) return;
  } else if (frame.introduction.has_value() || frame.hello.has_value()) {
    return Lose(SaidWrong(absl::StrCat(config_.node, " said hello twice")));
  }
  last_heard_ = shared_.control.Now();
  if (!frame.moved.empty() && shared_.routes.OnMoved(hello_, std::move(frame.moved))) {
    shared_.routes.ucx().OnMoved(View());
  }
  const bool goodbye = frame.goodbye;
  if (frame.events() > 0) OnEvents(std::move(frame));
  if (!goodbye || number_ != number || stream_ == nullptr) return;
  goodbye_ = true;
  LoseOnceRead(Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                     absl::StrCat(config_.node, " stops")));
}

// What may be said before a link is up: first the acceptor's introduction, then the hello.
absl::Status PeerLink::OnGreeting(PeerFrame& frame) {
  if (!handshake_.is_proven() && !handshake_.is_introduced()) {
    if (frame.hello.has_value() || frame.events() > 0 || !frame.introduction.has_value()) {
      return SaidWrong(absl::StrCat(config_.node, " did not introduce itself first"));
    }
    return OnIntroduction(frame);
  }
  if (!handshake_.is_proven() || !frame.hello.has_value() || frame.introduction.has_value()) {
    return SaidWrong(absl::StrCat(config_.node, " did not say hello first"));
  }
  static_cast<PeerIntroduction&>(*frame.hello) = handshake_.theirs();
  RETURN_IF_ERROR(CheckDevices(shared_.own, config_, *frame.hello));
  OnHello(*std::move(frame.hello));
  return absl::OkStatus();
}

// The introduction of the dialled daemon.
absl::Status PeerLink::OnIntroduction(const PeerFrame& frame) {
  RETURN_IF_ERROR(handshake_.OnIntroduction(config_, frame));
  if (shared_.own.secret.empty()) {  // then the proof is on peer.sock, see OnTheirSocketAnswer
    const absl::Status connected = ConnectSocket();
    if (connected.ok()) return connected;
    return NeedsSecret(absl::StrCat(
        LinkBetween(shared_.own, config_),
        "without a shared secret it is proven on peer.sock: ", connected.message(), "; or "));
  }
  handshake_.Prove(shared_.own.secret);
  Proven();
  SayHello(handshake_.Proof());
  return absl::OkStatus();
}

absl::Status PeerLink::ConnectSocket() {
  const std::string& path = handshake_.theirs().peer_socket;
  if (path == shared_.own.peer_socket) {
    return Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                 absl::StrCat("the peer.sock of ", config_.node, ", ", path, ", is here that of ",
                              shared_.own.node,
                              " itself: they are in containers of their own, or on hosts with one "
                              "boot id; to share memory, give each a runtime_dir of another name, "
                              "mounted in both"));
  }
  return shared_.their_sockets.Connect(id_, path, handshake_.SocketHello());
}

void PeerLink::SayHello(std::string proof) {
  PeerFrame frame;
  frame.proof = std::move(proof);
  frame.hello = shared_.routes.MakeHello(id_);
  stream_->Send(std::move(frame));
  last_sent_ = shared_.control.Now();
}

void PeerLink::OnHello(PeerHello hello) {
  hello_ = std::move(hello);
  shared_.routes.Trim(hello_);
  state_ = State::kSettling;
  since_ = shared_.control.Now();
  mapped_unsettled_ = true;
  shared_.routes.Start(View());
  if (!handshake_.we_dialled()) SayHello();
  if (shared_.their_sockets.IsOpen(id_)) return Settle(std::string(mapped_error_));
  if (hello_.boot_id != shared_.own.boot_id) {
    return Settle(absl::StrCat(config_.node, " is on another host"));
  }
  if (!shared_.own.TrustsUid(hello_.uid)) {
    return Settle(
        absl::StrCat(config_.node, " runs as uid ", hello_.uid, ", which peer.uids does not list"));
  }
  if (absl::Status connected = ConnectSocket(); !connected.ok()) {
    Settle(std::string(connected.message()));
  }
}

void PeerLink::OnTheirSocketAnswer(PeerSocketResponse response, ReceivedFds fds) {
  home_.Check();
  const std::string& path = handshake_.theirs().peer_socket;
  if (!mapped_unsettled_ && handshake_.is_proven()) {
    return shared_.their_sockets.OnResponse(id_, config_.node, std::move(response), std::move(fds));
  }
  // What our connection to their peer.sock answers to its hello.
  const auto* const welcome =
      response.error.ok() ? std::get_if<PeerSocketWelcome>(&response.body) : nullptr;
  absl::Status mapped = response.error;
  if (mapped.ok() && (welcome == nullptr || (fds.size() != 1 && fds.size() != 3))) {
    mapped = SaidWrong(absl::StrCat(path, " gave a wrong answer"));
  }
  if (mapped.ok()) mapped = shared_.pages.MapTheirs(id_, fds);
  if (handshake_.is_proven()) return Settle(std::string(mapped.message()));
  // Who listens there is a daemon of a uid that we trust, and says that this link is its own.
  if (welcome == nullptr || welcome->random.size() != kPeerSecretBytes) {
    return Reject(mapped.ok() ? SaidWrong(absl::StrCat(path, " did not prove who it is")) : mapped);
  }
  mapped_error_ = std::string(mapped.message());
  handshake_.OnWelcome(*welcome);
  Proven();
  SayHello();
}

void PeerLink::Settle(std::string mapped_error) {
  if (state_ != State::kSettling || !std::exchange(mapped_unsettled_, false)) return;
  mapped_ = mapped_error.empty();
  mapped_error_ = std::move(mapped_error);
  if (!mapped_) shared_.their_sockets.Close(id_);
  GoUp();
}

void PeerLink::GoUp() {
  home_.Check();
  if (mapped_unsettled_ || shared_.routes.IsUnsettled(id_)) return;
  state_ = State::kUp;
  since_ = shared_.control.Now();
  error_ = absl::OkStatus();
  redial_.OnUp(handshake_.we_dialled());

  RouteTable routes = shared_.routes.GoUp(View(), mapped_error_);
  const UcxLinks& ucx = shared_.routes.ucx();
  const auto shown = [](absl::string_view error) {
    return std::string(error.empty() ? "yes" : error);
  };
  FlightRecorder::Get().Record("peer.up", id_.value(), mapped_, ucx.IsTold(id_),
                               absl::StrCat(config_.node, " ", hello_.incarnation.ToString()));
  FERRY_LOG(info, "peer.up", LogFields("peer", config_.node, "incarnation", hello_.incarnation),
            "{}mapped {}, tcp {}, ucx {}", news_.OnUp(since_), mapped_ ? "yes" : mapped_error_,
            shown(routes[static_cast<size_t>(Route::kTcp)].why), shown(ucx.ErrorOf(id_)));
  shared_.driver->OnPeerUp(id_, std::move(routes), GpusOf(hello_));
  Deliver();
  Tried();
}

LinkView PeerLink::View() const {
  return {.peer = id_,
          .number = number_,
          .dialled = handshake_.we_dialled(),
          .mapped = mapped_,
          .node = config_.node,
          .devices = config_.devices,
          .secret = handshake_.secret(),
          .hello = hello_};
}

// --- Events.

void PeerLink::Say(PeerEvents events) {
  home_.Check();
  if (state_ != State::kUp) return;
  if (frames_.Say(*stream_, {std::move(events)}) == LinkFrames::Road::kStream) {
    last_sent_ = shared_.control.Now();
  }
}

void PeerLink::OnEvents(PeerEvents events) {
  home_.Check();
  if (absl::Status put = frames_.Hear(std::move(events)); !put.ok()) {
    return Lose(Annotate(put, absl::StrCat("the link to ", config_.node)));
  }
  Deliver();
}

void PeerLink::Deliver() {
  while (state_ == State::kUp) {
    std::optional<PeerEvents> events = frames_.Take();
    if (!events.has_value()) return;
    for (const ArenaId arena : events->arenas_gone) shared_.driver->OnPeerArenaGone(id_, arena);
    if (!events->messages.empty()) {
      shared_.driver->OnPeerMessages(id_, std::move(events->messages), events->more);
    }
  }
}

void PeerLink::SayMoved(GlobalDeviceId device) {
  home_.Check();
  // The dialler says hello as soon as both have proven who they are; the dialled daemon says it
  // when it has heard that.
  const bool said_hello =
      state_ == State::kSettling || state_ == State::kUp || handshake_.we_dialled();
  if (!handshake_.is_proven() || !said_hello) return;
  PeerFrame frame;
  frame.moved.push_back({device, shared_.routes.ucx().AddressesOf(device, id_)});
  stream_->Send(std::move(frame));
}

void PeerLink::SayGoodbye() {
  home_.Check();
  if (stream_ == nullptr || !handshake_.is_proven()) return;
  PeerFrame frame;
  frame.goodbye = true;
  stream_->Send(std::move(frame));
}

}  // namespace ferry
