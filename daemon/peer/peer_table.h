// SPDX-License-Identifier: Apache-2.0
// The links of this daemon to all other daemons. PeerTable opens a link when it is first needed,
// loses a link whose stream is closed or whose peer is silent for kSilence, and opens it again. The
// daemon whose node name is smaller dials; the other daemon knocks to be dialled. Each end proves
// who it is. Before that nothing that it says counts, and it is told no more than our introduction.
//
// A link is up, and the driver is told so, when hellos are exchanged, it is known whether the
// peer's arenas can be mapped, and each LinkRoute knows whether its route works. PeerTable owns the
// links, their streams, what routes have to do with them, and the callers that have not proven yet
// who they are. Home: control.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/home.h"
#include "base/mutex.h"
#include "daemon/door.h"
#include "daemon/local_devices.h"
#include "daemon/peer/nccl_links.h"
#include "daemon/peer/peer_socket.h"
#include "daemon/peer/peer_stream.h"
#include "daemon/peer/tcp_links.h"
#include "daemon/peer/ucx_links.h"
#include "daemon/session/session_table.h"
#include "daemon/transfer_driver.h"
#include "transfer/engine.h"
#include "transfer/mapped/link_page.h"

namespace ferry {

// The text of /proc/sys/kernel/random/boot_id: one id for each boot of a host. Copies of a host (as
// of a virtual machine) may share it.
std::string ReadBootId();

struct PeerConfig {
  std::string node;
  std::string address;
  std::vector<GlobalDeviceId> devices;
};

class PeerTable {
 public:
  struct Options {
    std::string node;
    Incarnation incarnation;
    std::string peer_socket;  // the path of this daemon's own peer.sock
    // The cluster's secret; "": links only to daemons of this host and of trusted uids
    std::string secret;
    std::vector<uint32_t> trusted_uids;  // uids, besides our own, whose daemons may map our arenas
    std::string ucx_version;             // "" if there is no UCX here
    std::string ucx_missing;             // if there is no UCX: why
    std::string nccl_version;            // "" if there is no NCCL here
    std::string nccl_missing;            // if there is no NCCL: why
    // The transports of our devices that links have to do with.
    TcpLinks::Transports tcp;
    UcxLinks::Transports ucx;
    std::vector<Route> order;
    // A link that nobody here wants is dialled at this interval all the same (a visit): the other
    // daemon may want it and be unable to dial. Infinite: no visits.
    absl::Duration visit_every = absl::Seconds(5);
  };
  struct Hooks {
    // Sends on a connection to a peer's peer.sock. False if the connection does not take the
    // request, or the request does not fit a packet.
    std::function<bool(Door::ConnectionId, const PeerSocketRequest&)> send_request;
    std::function<bool(Door::ConnectionId, const PeerSocketResponse&, const std::vector<int>&)>
        send_response;
    std::function<void(Door::ConnectionId)> close;
    // Closes the connection as well, but first delivers what has arrived, then calls
    // OnSocketClosed.
    std::function<void(Door::ConnectionId)> finish;
    // Connects to a peer's peer.sock; answers come to OnSocketResponse.
    std::function<absl::StatusOr<Door::ConnectionId>(PeerId, const std::string& path)> connect;
  };
  // Without other frames an empty frame is sent at this interval, and a peer that is silent for
  // kSilence is lost.
  static constexpr absl::Duration kHeartbeat = absl::Seconds(1);
  static constexpr absl::Duration kSilence = absl::Seconds(5);
  // A peer is lost when more messages than this (of many frames each) wait to be sent to it: it is
  // alive, but does not read what it is told.
  static constexpr size_t kMostWaiting = 4096;
  // A frame with more events than this goes by the stream: it would hardly fit a packet of
  // peer.sock, and coding it for peer.sock would be in vain.
  static constexpr uint64_t kMostBySocket = 1024;
  static constexpr absl::Duration kDialTimeout = absl::Seconds(5);
  // How long a refused link's stream is kept open, so that the other end reads why it was refused.
  static constexpr absl::Duration kPartingTimeout = absl::Seconds(1);
  // How many strangers List shows, and for how long: daemons that called under a name that
  // membership.nodes does not have.
  static constexpr size_t kMostStrangers = 8;
  static constexpr absl::Duration kStrangersKept = absl::Minutes(10);
  static constexpr absl::Duration kSocketTimeout = absl::Seconds(2);
  // Before a request that peer.sock did not take is tried again.
  static constexpr absl::Duration kAskAgain = absl::Milliseconds(5);
  // Bound of Callers: daemons that have opened a stream and not proven yet who they are. Beyond it
  // the oldest is refused.
  static constexpr size_t kMostCallers = 64;
  // While a daemon was heard within this time, no other daemon gets its name.
  static constexpr absl::Duration kLives = absl::Seconds(2);
  // At most one knock in this time makes us dial a peer, because anybody may knock.
  static constexpr absl::Duration kKnockPause = absl::Seconds(1);
  // After this many knocks that were answered with OK and brought no dial, the daemon that knocks
  // dials itself.
  static constexpr int kVainKnocks = 4;
  // Visits (Options::visit_every) to different peers are at least this far apart. So with many
  // peers each is visited less often.
  static constexpr absl::Duration kVisitGap = absl::Milliseconds(100);
  // The pause after the first dial that fails; it doubles with each further one.
  static constexpr absl::Duration kBackoffMin = absl::Milliseconds(100);

  // `peers` is indexed by PeerId; the entry of this daemon itself is ignored.
  PeerTable(Executor& control, LocalDevices& devices, SessionTable& sessions, PeerId self,
            std::vector<PeerConfig> peers, Options options, Hooks hooks);
  ~PeerTable();
  // Must be called before any other function. Both pointers outlive the table.
  void Connect(TransferDriver* driver, PeerDialer* dialer) {
    home_.Check();
    driver_ = driver;
    dialer_ = dialer;
  }

  // Tells all peers that the daemon is about to stop; they close their links, so that they do not
  // warn of our stop as of a loss. From here on no link is opened. Calls `done` once no proven link
  // is left; it is never called if Stop comes first.
  void SayGoodbye(std::function<void()> done);
  // Closes all links at once.
  void Stop();

  // --- From a reload. Adds a peer. `peer` is the next PeerId that was never used, or that of a
  // peer that was removed.
  void Add(PeerId peer, PeerConfig config);
  // Removes a peer: tells it why (the status that is returned) and loses its link, if there is one.
  // From here on that daemon is a stranger. `comes_again`: Add follows for the same node, since its
  // devices are others now.
  absl::Status Remove(PeerId peer, bool comes_again = false);
  // The peer is found at another address from now on. A link that there is, is lost, and opened
  // again there if it is wanted.
  void Move(PeerId peer, const std::string& address);

  // --- From the driver. Calls for a peer that was removed do nothing.
  // Opens the link, now and again each time that it is lost.
  void Want(PeerId peer);
  // Says the messages in one frame. `more`: as PeerEvents::more.
  void Send(PeerId peer, std::vector<PeerMessage> messages, bool more = false);
  // Asks the peer for its arena, to be mapped by `device`, which is one of ours. The driver's
  // OnPeerArena gets the answer.
  void FetchArena(PeerId peer, ArenaId arena, GlobalDeviceId device);
  // OK as long as bytes that were read from the peer's arenas may be believed. Any thread.
  absl::Status StillValid(PeerId peer) const;

  // The incarnation of this daemon, or of the peer as it was when the link last came up.
  Incarnation IncarnationOf(PeerId peer) const;

  // The link page of the link to `peer` (with `ours` the page that we made and whose slots we fire,
  // else the peer's page). Null if there is no such page, or it has no slots.
  std::shared_ptr<LinkPage> PageWithSlots(PeerId peer, bool ours) const;

  // How UCX reaches the memory of a device, for people: one of our devices, or of a peer whose link
  // is up. "" of a host device.
  std::string UcxWay(GlobalDeviceId device) const;
  // What a peer said of its device when the link came up; null unless that link is up.
  const PeerDeviceInfo* ToldOf(GlobalDeviceId device) const;

  // Whether a transfer that waits here for a partner at `device` may still hear of an offer that is
  // there already: the link to the device's daemon is being opened, or is up for less than
  // `settled`. False for our own devices.
  bool MayBringOffers(GlobalDeviceId device, absl::Duration settled) const;

  // --- From operators: opens the link to the daemon of `device` if it is not up. Calls `done` once
  // the link is up or could not be opened, at the latest after kDialTimeout. Calls it at once if
  // the link is up or `device` is no peer's.
  void WhenTried(GlobalDeviceId device, std::function<void()> done);

  // --- From gRPC: another daemon has opened a stream and introduced itself; another daemon has
  // knocked. OnAccepted calls either `accept` or `refuse`.
  void OnAccepted(std::function<std::unique_ptr<PeerStream>(PeerStreamCallbacks)> accept,
                  std::function<void(absl::Status)> refuse, PeerIntroduction introduction);
  absl::Status OnKnock(const std::string& node);

  // Whether processes of this uid may be peers or connect to peer.sock. Constant; any thread.
  bool TrustsUid(uint32_t uid) const;

  // --- From the peer port and lanes. OnDataConnection: a data connection has arrived with its
  // preamble, of which nothing is proven yet. OnTcpOpened: the connections that a lane opens to try
  // route `tcp` are open, or could not be opened.
  void OnDataConnection(const std::string& preamble, UniqueFd socket) {
    home_.Check();
    tcp_.OnDataConnection(preamble, std::move(socket));
  }
  void OnTcpOpened(PeerId peer, uint64_t link_number, const absl::Status& status);

  // --- From a lane: the UCX of `device` has other addresses now, which all peers must be told, or
  // the peer `to` alone.
  void OnUcxMoved(GlobalDeviceId device, std::optional<PeerId> to);

  // --- From peer.sock.
  void OnSocketRequest(Door::ConnectionId connection, const Credentials& credentials,
                       PeerSocketRequest request);
  void OnSocketResponse(PeerId peer, Door::ConnectionId connection, PeerSocketResponse response,
                        ReceivedFds fds);
  void OnSocketClosed(Door::ConnectionId connection);

  // --- From the session table.
  void OnArenaGone(ArenaId arena);

  // Sends heartbeats, loses silent peers, dials again. Returns when to be called again.
  absl::Time OnTime(absl::Time now);

  struct Row {
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
  std::vector<Row> List() const;
  // Frames sent to all peers since the start, by road: peer.sock or the gRPC stream. Heartbeats are
  // not counted.
  struct Frames {
    uint64_t socket = 0;
    uint64_t stream = 0;
  };
  const Frames& frames() const { return frames_; }

 private:
  enum class State { kIdle, kConnecting, kSettling, kUp, kLost };
  struct Link;
  struct Caller;
  using Callers = std::map<uint64_t, Caller>;
  // What is kept of a link whose other end we refuse, until kPartingTimeout has passed or the other
  // end has closed.
  struct Parting {
    // A stream that we have opened; null if the peer opened it (it has ended then).
    std::unique_ptr<PeerStream> stream;
    absl::Time since;
    // Connections on peer.sock, to the peer and from it. They stay open as well, because their end
    // would be heard before the refusal. What is said on them counts no more.
    std::vector<Door::ConnectionId> sockets;
  };
  using Partings = std::map<uint64_t, Parting>;
  // A daemon that called under a name that membership.nodes does not have.
  struct Stranger {
    std::string node;  // printable: what is no text is escaped
    std::string why;
    absl::Time since;
  };

  // Whether it is this daemon that dials, by the two names. Else the other daemon dials; we knock,
  // and dial after kVainKnocks knocks in vain.
  bool Dials(const Link& link) const;
  void Dial(Link& link, bool visiting = false);
  // Makes a visit if nobody here wants the link and it is time for one. Returns when to be called
  // again.
  absl::Time Visit(Link& link, absl::Time now);
  // A visit is over because nobody at the other daemon waits for it. This is no failure: the link
  // is as it was before.
  void EndVisit(Link& link, const absl::Status& why);
  absl::Duration VisitPause() const;
  void Knock(Link& link);
  PeerStreamCallbacks CallbacksFor(PeerId peer, uint64_t number);
  PeerIntroduction Introduce() const;
  PeerHello MakeHello(PeerId to) const;
  void SayHello(Link& link, std::string proof = "");
  absl::Status CheckIntroduction(const Link& link, const PeerIntroduction& introduction) const;
  absl::Status CheckRole(const Link* link, const std::string& node, bool dials);
  absl::Status CheckVisit(const Link* link, const std::string& node) const;
  absl::Status CheckDevices(const Link& link, const PeerHello& hello) const;
  absl::Status OnIntroduction(Link& link, const PeerFrame& frame);
  absl::Status OnGreeting(Link& link, PeerFrame& frame);
  void OnCallerFrame(Callers::iterator caller, PeerFrame frame);
  void Refuse(Callers::iterator caller, const absl::Status& why);
  absl::Status TakeOver(Callers::iterator caller, absl::string_view material);
  void Proven(Link& link, absl::string_view material);
  absl::Status ConnectSocket(Link& link);
  Callers::iterator FindCaller(const PeerSocketHello& hello);
  absl::Time DropLateCallers(absl::Time now);
  void OnWelcome(Link& link, PeerSocketResponse response, ReceivedFds fds);
  void OnFrame(PeerId peer, uint64_t link_number, PeerFrame frame);
  void OnEvents(Link& link, PeerEvents events);
  void Deliver(Link& link);
  void Tell(Link& link, PeerFrame frame);
  void OnHello(Link& link, PeerHello hello);
  // The table learns whether the peer's arenas can be mapped: "" if so, else why not.
  void Settle(Link& link, std::string mapped_error);
  // Takes the link up once it is known whether the peer's arenas can be mapped and whether each
  // route works. Before that it does nothing.
  void GoUp(Link& link);
  static LinkView ViewOf(const Link& link);
  void OnMoved(Link& link, std::vector<PeerDeviceInfo> moved);
  void Lose(Link& link, const absl::Status& why);
  void LoseOnceRead(Link& link, const absl::Status& why);
  // Loses the link and tells the other end why (Parting).
  void Reject(Link& link, const absl::Status& why);
  void Part(Link& link, const absl::Status& why);
  bool IsParting(Door::ConnectionId socket) const;
  void EndParting(Partings::iterator parting);
  absl::Time DropLatePartings(absl::Time now);
  // One of the two daemons has found that the link cannot be opened. A link that is open is not
  // touched: somebody else may have called in the peer's name.
  void OnRefused(Link& link, const absl::Status& why);
  static absl::Status Unproven(const Link& link, const absl::Status& refusal);
  // Remembers and logs a stranger. Returns `why`.
  absl::Status RefuseStranger(const std::string& node, const absl::Status& why);
  void AddStrangers(std::vector<Row>& rows) const;
  // The kinds of requests at peer.sock that are answered; `sequence` is the request's.
  void OnSocketHello(Door::ConnectionId connection, const Credentials& credentials,
                     uint64_t sequence, const PeerSocketHello& hello);
  void ShareArena(Door::ConnectionId connection, const Link& link, uint64_t sequence, ArenaId id);
  // Answers a request with `why` and closes the connection, which is of no link from here on.
  void RefuseSocket(Door::ConnectionId connection, const Credentials& credentials,
                    uint64_t sequence, absl::Status why);
  void AskForArenas(Link& link);
  void CloseSockets(Link& link);
  void Tried(Link& link);
  void LookWhoIsLeft();
  // Logs that the link is lost, unless LinkNews holds that back.
  void Say(Link& link, const absl::Status& why, bool goodbye);
  Link* FindByNode(const std::string& node);
  // Null for this daemon itself and for a peer that was removed: whatever comes late of it then
  // counts no more.
  Link* Find(PeerId peer) const { return links_[peer.value()].get(); }

  Executor& control_;
  LocalDevices& devices_;
  SessionTable& sessions_;
  const PeerId self_;
  std::vector<GlobalDeviceId> own_ids_;  // by membership, also those of GPUs that are missing
  const Options options_;
  const Hooks hooks_;
  TcpLinks tcp_;
  UcxLinks ucx_;
  NcclLinks nccl_;
  const std::array<LinkRoute*, 3> routes_ = {&tcp_, &ucx_, &nccl_};
  const std::string boot_id_;
  TransferDriver* driver_ = nullptr;
  PeerDialer* dialer_ = nullptr;
  bool leaving_ = false;
  bool stopped_ = false;
  std::function<void()> gone_;                // SayGoodbye's `done`, until no proven link is left
  std::vector<std::unique_ptr<Link>> links_;  // by PeerId; null: see Find
  uint64_t streams_ = 0;  // number of streams so far, those of links and of callers
  uint64_t last_knock_ = 0;
  Callers callers_;                  // by the number of the stream; the oldest first
  Partings partings_;                // by the number of the stream
  std::vector<Stranger> strangers_;  // the latest last
  Frames frames_;
  // Incoming peer.sock connections that have proven which peer they are from.
  absl::flat_hash_map<Door::ConnectionId, PeerId> socket_peers_;
  // The peers that may ask for one of our arenas, by arena: our offers to them have named it.
  absl::flat_hash_map<ArenaId, std::vector<PeerId>> lent_to_;
  // The peers' link pages by PeerId. Lanes read them, hence the mutex.
  struct Page {
    std::string node;
    std::shared_ptr<LinkPage> page;
  };
  mutable Mutex pages_mutex_;
  std::vector<Page> pages_ ABSL_GUARDED_BY(pages_mutex_);
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
