// SPDX-License-Identifier: Apache-2.0
// The link to one peer, from the daemon's start (or PeerTable::Add) to its end (or
// PeerTable::Remove), whether a stream is open or not. "We" is this daemon, "they" the peer.
//
//   kIdle --dial--> kConnecting --hellos--> kSettling --routes are known--> kUp
//                   a caller that has proven who it is begins at kConnecting too
//   each of them --lost, refused--> kLost --dial--> kConnecting
//
// A stream belongs to the link once we have opened it, or once its caller has proven who it is.
// Before the proof nothing that the peer says counts; before kUp the driver does not know of the
// link. PeerLink loses a link whose stream is closed, whose peer is silent for kSilence, does not
// read what it is told, or says what it must not.
//
// Owns the stream; what it needs of the other links is Shared. Home: control. Owner: PeerTable,
// which is the only caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/closer.h"
#include "base/executor.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/local_devices.h"
#include "daemon/peer/callers.h"
#include "daemon/peer/handshake.h"
#include "daemon/peer/introduction.h"
#include "daemon/peer/lent_arenas.h"
#include "daemon/peer/link_frames.h"
#include "daemon/peer/link_news.h"
#include "daemon/peer/link_pages.h"
#include "daemon/peer/link_route.h"
#include "daemon/peer/link_routes.h"
#include "daemon/peer/own_socket.h"
#include "daemon/peer/partings.h"
#include "daemon/peer/peer_socket.h"
#include "daemon/peer/peer_stream.h"
#include "daemon/peer/redial.h"
#include "daemon/peer/their_sockets.h"
#include "daemon/transfer_driver.h"

namespace ferry {

// A peer as operators see it.
struct PeerRow {
  std::string node;
  std::string address;  // "" for a stranger
  std::string state;
  Incarnation incarnation;
  std::string version;  // version of the peer's ferryd; "" while the link is not up
  std::string error;
  bool mapped = false;
  // The peer's deadline, if it has said that it drains; else none.
  std::optional<absl::Time> drains_until;
  std::vector<GlobalDeviceId> devices;
  // Those devices as described in the peer's latest hello; empty before the first.
  std::vector<DeviceInfo> told;
};

class PeerLink {
 public:
  // Without other frames an empty frame is sent at this interval, and a peer that is silent for
  // kSilence is lost.
  static constexpr absl::Duration kHeartbeat = absl::Seconds(1);
  static constexpr absl::Duration kSilence = absl::Seconds(5);
  // A peer is lost when more messages than this (of many frames each) wait to be sent to it: it is
  // alive, but does not read what it is told.
  static constexpr size_t kMostWaiting = 4096;
  static constexpr absl::Duration kDialTimeout = absl::Seconds(5);
  static constexpr absl::Duration kSocketTimeout = absl::Seconds(2);
  // While a daemon was heard within this time, no other daemon gets its name.
  static constexpr absl::Duration kLives = absl::Seconds(2);

  // What all links share. Outlives them.
  struct Shared {
    Executor& control;
    const OwnDaemon& own;
    LinkRoutes& routes;
    LinkPages& pages;
    LentArenas& lent;
    OwnSocket& own_socket;
    TheirSockets& their_sockets;
    Partings& partings;
    // The callbacks of a stream to this peer, by the stream's number.
    std::function<PeerStreamCallbacks(PeerId, uint64_t)> callbacks;
    // Null: the peer was removed.
    std::function<PeerLink*(PeerId)> find;
    // A link was lost.
    std::function<void()> lost;
    TransferDriver* driver = nullptr;
    PeerDialer* dialer = nullptr;
    bool leaving = false;        // the daemon is about to stop: no link is opened
    absl::Duration visit_pause;  // between two visits to one peer
    uint64_t streams = 0;        // number of streams so far, those of links and of callers
    uint64_t knocks = 0;         // number of our knocks so far
    FrameCounts frames;
  };

  // `visit_at`: when the first visit is due.
  PeerLink(Shared& shared, PeerId peer, PeerConfig config, absl::Time visit_at);

  PeerId id() const { return id_; }
  const PeerConfig& config() const { return config_; }
  bool is_up() const { return state_ == State::kUp; }
  const Handshake& handshake() const { return handshake_; }
  // What the peer said of itself when the link last came up.
  const PeerHello& hello() const { return hello_; }
  // Somebody here waits for the link.
  bool is_awaited() const { return redial_.wanted() && !handshake_.is_proven(); }
  // The link could not be opened, or was lost, and is not open.
  bool has_failed() const { return !handshake_.is_proven() && !error_.ok(); }
  // The link is lost once the peer's connection to our peer.sock has been read to its end.
  bool is_ending() const { return ending_.has_value(); }
  PeerRow Describe() const;

  // --- Opening.
  // Opens the link, now and again each time that it is lost.
  void Want();
  // As PeerTable::WhenTried, of a link that is not up.
  void WhenTried(std::function<void()> done);
  // As PeerTable::MayBringOffers.
  bool MayBringOffers(absl::Duration settled) const;
  // The peer has knocked.
  void OnKnocked();
  // The peer is found at another address; the link is lost because of `why`.
  void Move(const std::string& address, const absl::Status& why);
  // A caller has proven that it is the peer, in this life of it. OK if its stream may become the
  // link's: then the link has no stream any more. ALREADY_EXISTS: another daemon of that name
  // lives.
  absl::Status GiveWay(Incarnation caller);
  // The caller's stream is the link's from here on. Call GiveWay before. `material`: as
  // PeerLinkSecret.
  void TakeOver(uint64_t number, Callers::Caller caller, absl::string_view material);
  // Sends heartbeats, loses a silent peer, dials again. Returns when to be called again.
  absl::Time OnTime(absl::Time now);

  // --- From the stream of this number. What comes of an older one is ignored.
  void OnFrame(uint64_t number, PeerFrame frame);
  void OnStreamClosed(uint64_t number, const absl::Status& why);

  // --- From peer.sock. The peer has said events on its connection to ours; that connection has
  // ended; ours to the peer's has been answered; it has ended.
  void OnEvents(PeerEvents events);
  void OnOwnSocketClosed();
  void OnTheirSocketAnswer(PeerSocketResponse response, ReceivedFds fds);
  void OnTheirSocketClosed();

  // --- To the peer. Does nothing if the link is not up: the engine hears of the lost link, and
  // ends what the messages are about.
  void Say(PeerEvents events);
  // The UCX of our device has other addresses now.
  void SayMoved(GlobalDeviceId device);
  void SayGoodbye();

  // Takes the link up once it is known whether the peer's arenas can be mapped and whether each
  // route works. Before that it does nothing.
  void GoUp();

  // --- The end.
  // One of the two daemons has found that the link cannot be opened. A link that is open is not
  // touched: somebody else may have called in the peer's name.
  void OnRefused(const absl::Status& why);
  // The peer was removed because of `why`, which it is told.
  void Remove(const absl::Status& why);
  // This daemon stops.
  void Stop(const absl::Status& why);

 private:
  enum class State { kIdle, kConnecting, kSettling, kUp, kLost };

  void Dial(bool visiting);
  void Knock();
  // A visit is over because nobody at the other daemon waits for it. This is no failure: the link
  // is as it was before.
  void EndVisit(const absl::Status& why);
  // What is to do for an open stream at `now`; returns when again.
  absl::Time LookAtStream(absl::Time now);

  absl::Status OnGreeting(PeerFrame& frame);
  absl::Status OnIntroduction(const PeerFrame& frame);
  absl::Status ConnectSocket();
  void Proven();
  void SayHello(std::string proof = "");
  void OnHello(PeerHello hello);
  // The link learns whether the peer's arenas can be mapped: "" if so, else why not.
  void Settle(std::string mapped_error);
  LinkView View() const;
  void Deliver();

  void Lose(const absl::Status& why);
  void LoseOnceRead(const absl::Status& why);
  // Loses the link and tells the other end why (Partings).
  void Reject(const absl::Status& why);
  // Ends the link, if there is one, by our own decision.
  void Part(const absl::Status& why);
  // Calls WhenTried's callbacks.
  void Tried();

  Shared& shared_;
  const PeerId id_;
  PeerConfig config_;
  State state_ = State::kIdle;
  absl::Time since_;  // when `state_` was entered
  Redial redial_;
  // Number of the stream among all streams; callbacks of older streams are ignored
  uint64_t number_ = 0;
  std::unique_ptr<PeerStream> stream_;
  Handshake handshake_;
  // `stream_` is a visit: we have opened it for the other daemon's sake only, and it has not
  // answered yet.
  bool visiting_ = false;
  absl::Time last_heard_;
  absl::Time last_sent_;
  PeerHello hello_;  // what the peer said of itself when the link last came up
  Incarnation
      refused_;  // the last incarnation we refused because another daemon of this name lives
  // Why the link was lost or refused; OK before the first time and while it is up.
  absl::Status error_;
  LinkNews news_;
  bool goodbye_ = false;  // one of the two daemons has said that the link ends
  // WhenTried's callbacks, and when they are called whatever has become of the link.
  std::vector<std::function<void()>> awaiting_;
  absl::Time awaiting_until_;
  LinkFrames frames_;  // nothing is taken out of it before the link is up
  // While connecting: our connection to their peer.sock has ended. The link is lost for this reason
  // at `unsaid_until_`, unless the peer says a better one on the stream before.
  std::optional<absl::Status> unsaid_;
  absl::Time unsaid_until_;
  // Why the link is lost, once the door has read what arrived before the connection's end.
  std::optional<absl::Status> ending_;
  // Whether their arenas can be mapped, and why not; true while settling until that is known.
  bool mapped_ = false;
  std::string mapped_error_;
  bool mapped_unsettled_ = false;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
