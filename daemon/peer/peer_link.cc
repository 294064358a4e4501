// SPDX-License-Identifier: Apache-2.0
// How a link is opened and lost. What is said on it first is in link_greeting.cc.
#include "daemon/peer/peer_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"

namespace ferry {
namespace {

absl::Status Unreachable(const std::string& what) {
  return Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, what);
}

// Logs that a link is lost, unless LinkNews holds that back.
void LogLost(const std::string& node, const std::optional<LinkNews::Line>& line) {
  if (!line) return;
  const LogFields fields("peer", node);
  if (line->warn) {
    FERRY_LOG(warn, "peer.lost", fields, "{}", line->text);
  } else {
    FERRY_LOG(info, "peer.lost", fields, "{}", line->text);
  }
}

}  // namespace

PeerLink::PeerLink(Shared& shared, PeerId peer, PeerConfig config, absl::Time visit_at)
    : shared_(shared),
      id_(peer),
      config_(std::move(config)),
      redial_(shared.own.Dials(config_), visit_at),
      handshake_(shared.own),
      frames_(shared.their_sockets, peer, shared.frames) {}

PeerRow PeerLink::Describe() const {
  home_.Check();
  constexpr const char* kNames[] = {"idle", "connecting", "connecting", "up", "lost"};
  PeerRow row;
  row.node = config_.node;
  row.address = config_.address;
  row.state = kNames[static_cast<int>(visiting_ ? State::kIdle : state_)];
  if (state_ == State::kUp) {
    row.incarnation = hello_.incarnation;
    row.version = hello_.daemon_version;
  }
  row.error = state_ == State::kUp ? (mapped_ ? "" : "mapped: " + mapped_error_)
                                   : std::string(error_.message());
  row.mapped = mapped_;
  row.drains_until = shared_.driver->engine().view().DrainsUntil(id_);
  row.devices = config_.devices;
  for (const PeerDeviceInfo& device : hello_.devices) {
    row.told.push_back({device.id, device.name, device.gpu, device.uuid});
  }
  return row;
}

void PeerLink::Want() {
  home_.Check();
  if (!redial_.Want()) return;
  if (visiting_) EndVisit(absl::CancelledError("somebody wants the link after all"));
  if (state_ != State::kIdle && state_ != State::kLost) return;
  redial_.OpenAt(shared_.control.Now());
  // OnTime may have run already for this batch of tasks: have it run again
  shared_.control.Post([] {});
}

void PeerLink::WhenTried(std::function<void()> done) {
  home_.Check();
  if (awaiting_.empty()) awaiting_until_ = shared_.control.Now() + kDialTimeout;
  awaiting_.push_back(std::move(done));
  Want();
}

void PeerLink::Tried() {
  for (const auto& done : std::exchange(awaiting_, {})) done();
}

bool PeerLink::MayBringOffers(absl::Duration settled) const {
  home_.Check();
  switch (state_) {
    case State::kIdle:
      return redial_.wanted() && error_.ok();
    case State::kConnecting:
      return !visiting_;
    case State::kSettling:
      return true;
    case State::kUp:
      return shared_.control.Now() < since_ + settled;
    case State::kLost:
      return false;
  }
  return false;
}

void PeerLink::OnKnocked() {
  home_.Check();
  if (visiting_) {
    EndVisit(absl::CancelledError("the other daemon wants the link after all"));
  }
  // Dials once; a daemon that gets no link knocks again.
  if (stream_ == nullptr) redial_.OnKnocked(shared_.control.Now());
}

void PeerLink::Move(const std::string& address, const absl::Status& why) {
  home_.Check();
  config_.address = address;
  redial_.OnMoved();
  Part(why);
  redial_.OpenAt(shared_.control.Now());
}

void PeerLink::Dial(bool visiting) {
  number_ = ++shared_.streams;
  state_ = State::kConnecting;
  since_ = last_heard_ = last_sent_ = shared_.control.Now();
  visiting_ = visiting;
  PeerFrame frame;
  frame.introduction = handshake_.Dial(/*in_reverse=*/!redial_.dials(), visiting);
  stream_ = shared_.dialer->Dial(config_.address, shared_.callbacks(id_, number_));
  stream_->Send(std::move(frame));
}

void PeerLink::Knock() {
  const uint64_t knock = ++shared_.knocks;
  redial_.Knock(knock);
  shared_.dialer->Knock(
      config_.address, shared_.own.node,
      [&shared = shared_, peer = id_, knock](const absl::Status& status) {
        // Since it was asked the node may have left, come back, or moved to another address.
        PeerLink* const link = shared.find(peer);
        if (link == nullptr || !link->redial_.EndKnock(knock) || link->stream_ != nullptr) return;
        if (!status.ok()) {
          link->OnRefused(Annotate(status, absl::StrCat("knock at ", link->config_.node)));
        }
        link->redial_.OnKnockInVain(/*heard=*/status.ok(), shared.control.Now());
      });
}

void PeerLink::EndVisit(const absl::Status& why) {
  visiting_ = false;
  stream_->Close(why);
  stream_.reset();
  number_ = ++shared_.streams;
  state_ = error_.ok() ? State::kIdle : State::kLost;
  since_ = shared_.control.Now();
  redial_.OnVisited(since_ + shared_.visit_pause);
  redial_.OpenAt(since_);
}

absl::Time PeerLink::LookAtStream(absl::Time now) {
  const absl::Duration patience = state_ == State::kConnecting ? kDialTimeout : kSilence;
  const auto unreachable = [&](const auto&... what) {
    return Unreachable(absl::StrCat(config_.node, " at ", config_.address, what...));
  };
  if (now >= last_heard_ + patience) {
    Lose(unreachable(" was silent for ", DurationText(patience)));
  } else if (unsaid_.has_value() && now >= unsaid_until_) {
    Reject(absl::Status(*unsaid_));
  } else if (stream_->waiting() > kMostWaiting) {
    Lose(unreachable(" does not take what it is told: ", stream_->waiting(), " messages wait"));
  } else {
    if (state_ == State::kSettling && now >= since_ + kSocketTimeout) {
      Settle(absl::StrCat("no answer at ", hello_.peer_socket));
      if (shared_.routes.GiveUp(id_, kSocketTimeout)) GoUp();
    }
    if (now >= last_sent_ + kHeartbeat) {
      stream_->Send({});
      last_sent_ = now;
    }
    absl::Time next = std::min(last_heard_ + patience, last_sent_ + kHeartbeat);
    if (state_ == State::kSettling) next = std::min(next, since_ + kSocketTimeout);
    if (unsaid_.has_value()) next = std::min(next, unsaid_until_);
    if (shared_.their_sockets.Ask(id_)) next = std::min(next, now + TheirSockets::kAskAgain);
    return next;
  }
  return absl::InfiniteFuture();
}

absl::Time PeerLink::OnTime(absl::Time now) {
  home_.Check();
  absl::Time next = stream_ != nullptr ? LookAtStream(now) : absl::InfiniteFuture();
  if (stream_ == nullptr) {
    switch (redial_.Take(now)) {
      case Redial::Step::kNone:
        break;
      case Redial::Step::kDial:
        Dial(/*visiting=*/false);
        break;
      case Redial::Step::kVisit:
        Dial(/*visiting=*/true);
        break;
      case Redial::Step::kKnock:
        Knock();
        break;
    }
    next = std::min(next, stream_ != nullptr ? now + kHeartbeat : redial_.NextTime());
  }
  if (!awaiting_.empty()) {
    if (now >= awaiting_until_) {
      Tried();
    } else {
      next = std::min(next, awaiting_until_);
    }
  }
  return next;
}

void PeerLink::Lose(const absl::Status& why) {
  if (visiting_) return EndVisit(why);
  const bool established = state_ == State::kUp;
  const absl::Time now = shared_.control.Now();
  FlightRecorder::Get().Record("peer.lost", id_.value(), established, 0, why.message());
  LogLost(config_.node, news_.OnLost(now, why, std::exchange(goodbye_, false) || shared_.leaving));
  // First of all: a peer that still copies from our arenas must not believe what it reads from here
  // on.
  shared_.pages.Revoke(id_);
  if (stream_ != nullptr) stream_->Close(why);
  stream_.reset();
  number_ = ++shared_.streams;
  handshake_.End();
  state_ = State::kLost;
  since_ = now;
  error_ = why;
  mapped_ = false;
  frames_.Restart();
  ending_.reset();
  unsaid_.reset();
  mapped_unsettled_ = false;
  shared_.routes.Stop(id_, why);
  redial_.OnLost(now);
  shared_.their_sockets.Close(id_);
  shared_.pages.DropTheirs(id_);
  shared_.own_socket.Close(id_);
  shared_.lent.ForgetPeer(id_);
  shared_.driver->OnPeerLost(id_, why, established);
  Tried();
  shared_.lost();
}

// The stream, or our connection to their peer.sock, has ended. What they said before, perhaps that
// transfers went well, is still in their connection to ours. It counts, as it would at the end of a
// single stream.
void PeerLink::LoseOnceRead(const absl::Status& why) {
  if (!shared_.own_socket.Has(id_)) return Lose(why);
  if (!ending_.has_value()) ending_ = why;
  shared_.own_socket.Finish(id_);
}

void PeerLink::Reject(const absl::Status& why) {
  if (stream_ != nullptr) {
    // The daemon that accepts ends the stream with `why`. The daemon that dials says it in a frame
    // and lets the other end the stream, because a stream that is cancelled may lose what was said
    // on it.
    std::unique_ptr<PeerStream> stream;
    if (handshake_.we_dialled()) {
      PeerFrame frame;
      frame.refusal = why;
      stream_->Send(std::move(frame));
      stream = std::move(stream_);
    }
    std::vector<Door::ConnectionId> sockets = shared_.own_socket.Take(id_);
    if (const auto theirs = shared_.their_sockets.Take(id_)) {
      sockets.insert(sockets.begin(), *theirs);
    }
    shared_.partings.Add(number_, std::move(stream), std::move(sockets));
  }
  Lose(why);
}

void PeerLink::Part(const absl::Status& why) {
  if (visiting_) EndVisit(why);
  if (stream_ == nullptr) return;
  goodbye_ = true;
  if (handshake_.is_proven()) {
    Reject(why);
  } else {
    Lose(why);
  }
}

void PeerLink::OnRefused(const absl::Status& why) {
  home_.Check();
  if (stream_ == nullptr) {
    error_ = why;
    LogLost(config_.node, news_.OnLost(shared_.control.Now(), why, shared_.leaving));
    shared_.driver->OnPeerLost(id_, why, false);
    return Tried();
  }
  // The existing link stays as it is: somebody else may have said this in the peer's name.
  FERRY_LOG_LIMITED(warn, "peer.refused", LogFields("peer", config_.node), "{}",
                    std::string(why.message()));
}

void PeerLink::Remove(const absl::Status& why) {
  home_.Check();
  redial_.Unwant();
  Part(why);
  Tried();
}

void PeerLink::Stop(const absl::Status& why) {
  home_.Check();
  if (stream_ != nullptr) Lose(why);
  Tried();
}

void PeerLink::OnStreamClosed(uint64_t number, const absl::Status& why) {
  home_.Check();
  if (number_ != number || stream_ == nullptr) return;
  LoseOnceRead(Unreachable(absl::StrCat("the link to ", config_.node, " closed: ", why.message())));
}

void PeerLink::OnOwnSocketClosed() {
  home_.Check();
  if (ending_.has_value()) Lose(absl::Status(*ending_));
}

void PeerLink::OnTheirSocketClosed() {
  home_.Check();
  shared_.their_sockets.OnClosed(id_);
  if (mapped_unsettled_) return Settle("peer.sock closed");
  if (state_ == State::kConnecting) {  // if they refuse us, the stream's end says why
    unsaid_ = Unreachable(absl::StrCat(handshake_.theirs().peer_socket, " closed"));
    unsaid_until_ = shared_.control.Now() + Partings::kTimeout;
    return;
  }
  // What we said there may not have arrived, and arenas that we asked for will not come.
  LoseOnceRead(Unreachable(absl::StrCat(hello_.peer_socket, " of ", config_.node, " closed")));
}

}  // namespace ferry
