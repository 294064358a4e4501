// SPDX-License-Identifier: Apache-2.0
// The links to all other daemons: opens them when first needed, knows who is alive, loses who is
// closed or silent, and opens them again. The daemon whose node name is smaller dials; the other
// one knocks. Each end proves who it is before anything counts that it says, and before it is told
// more than who we say we are. A link is told to the driver as up once hellos are exchanged and it
// is settled whether arenas can be mapped, and `tcp` and `ucx` work. Home: control.
#pragma once

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
#include "base/mutex.h"
#include "daemon/door.h"
#include "daemon/local_devices.h"
#include "daemon/peer_socket.h"
#include "daemon/peer_stream.h"
#include "daemon/session_table.h"
#include "daemon/transfer_driver.h"
#include "transfer/engine.h"
#include "transfer/mapped/link_page.h"

namespace ferry {

// /proc/sys/kernel/random/boot_id: of one host it is the same. Copies of a host may share it too.
std::string ReadBootId();
// Where /proc/self/ns/net leads.
std::string ReadNetworkNamespace();

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
    std::string peer_socket;             // path of ours
    std::string secret;                  // the cluster's; "": only daemons of this host and user
    std::vector<uint32_t> trusted_uids;  // besides our own: may map arenas
    std::string ucx_version;             // "" if there is none
    std::string ucx_missing;             // why, then
    std::string nccl_version;            // "" if there is none
    std::string nccl_missing;            // why, then
    std::vector<Route> order;
    // A link that nobody here wants is dialled so often all the same, in case that the other daemon
    // wants it and cannot dial. Infinite: never.
    absl::Duration visit_every = absl::Seconds(5);
  };
  struct Hooks {
    // False if the connection will not take it, or it does not fit a packet.
    std::function<bool(Door::ConnectionId, const PeerSocketRequest&)> send_request;
    std::function<bool(Door::ConnectionId, const PeerSocketResponse&, const std::vector<int>&)>
        send_response;
    std::function<void(Door::ConnectionId)> close;
    // Closes it as well, but what has arrived is delivered first, then OnSocketClosed.
    std::function<void(Door::ConnectionId)> finish;
    // Connects to a peer's peer.sock; answers come to OnSocketResponse.
    std::function<absl::StatusOr<Door::ConnectionId>(PeerId, const std::string& path)> connect;
  };
  static constexpr absl::Duration kHeartbeat = absl::Seconds(1);
  static constexpr absl::Duration kSilence = absl::Seconds(5);
  // A peer that lets so many messages (of many frames each) wait is lost: it is alive, but does not
  // take what it is told.
  static constexpr size_t kMostWaiting = 4096;
  // Events of one frame that may go over peer.sock: more hardly fit a packet, and are not coded in
  // vain.
  static constexpr uint64_t kMostBySocket = 1024;
  static constexpr absl::Duration kDialTimeout = absl::Seconds(5);
  // For the other end to take note of why a link is refused.
  static constexpr absl::Duration kPartingTimeout = absl::Seconds(1);
  // Callers of names that membership.nodes does not have, which List shows for so long.
  static constexpr size_t kMostStrangers = 8;
  static constexpr absl::Duration kStrangersKept = absl::Minutes(10);
  static constexpr absl::Duration kSocketTimeout = absl::Seconds(2);
  static constexpr absl::Duration kAskAgain = absl::Milliseconds(5);  // what peer.sock did not take
  // Who has not proven yet who it is; beyond that the oldest is dropped.
  static constexpr size_t kMostCallers = 64;
  // A daemon that was heard so recently lives: no other one gets its name.
  static constexpr absl::Duration kLives = absl::Seconds(2);
  // Knocks have a peer dialled at most so often: anybody may knock.
  static constexpr absl::Duration kKnockPause = absl::Seconds(1);
  // After so many knocks that were taken and brought no dial, the daemon that knocks dials itself.
  static constexpr int kVainKnocks = 4;
  // See Options::visit_every: visits of several peers are so far apart, and so less often of many.
  static constexpr absl::Duration kVisitGap = absl::Milliseconds(100);
  // Between dials that fail: doubled each time.
  static constexpr absl::Duration kBackoffMin = absl::Milliseconds(100);

  // `peers` by PeerId; the entry of this daemon itself is ignored.
  PeerTable(Executor& control, LocalDevices& devices, SessionTable& sessions, PeerId self,
            std::vector<PeerConfig> peers, Options options, Hooks hooks);
  ~PeerTable();
  // Before anything else.
  void Connect(TransferDriver* driver, PeerDialer* dialer);

  // The daemon is about to stop: peers are told, who then close their links, so that a stop is no
  // loss to them. No link is opened any more; `done` is called once none is left, or by nobody if
  // Stop comes first.
  void SayGoodbye(std::function<void()> done);
  // Closes all links.
  void Stop();

  // --- From a reload. A further peer; `peer` is a new one, the next, or one that was removed.
  void Add(PeerId peer, PeerConfig config);
  // It is told why, which is returned, and its link, if any, is lost; from here on it is a
  // stranger. `comes_again`: Add follows, since it has other devices.
  absl::Status Remove(PeerId peer, bool comes_again = false);
  // It is to be found at another address: a link that there is, is lost and opened there.
  void Move(PeerId peer, const std::string& address);

  // --- From the driver; of peers that have left, nothing.
  void Want(PeerId peer);
  // `more`: as PeerEvents'.
  void Send(PeerId peer, std::vector<PeerMessage> messages, bool more = false);
  // To be mapped by `device`, one of ours.
  void FetchArena(PeerId peer, ArenaId arena, GlobalDeviceId device);
  // Any thread: OK while bytes read from the peer's arenas may be believed.
  absl::Status StillValid(PeerId peer) const;

  // Of this life, or the peer's that the link is up with.
  Incarnation IncarnationOf(PeerId peer) const;

  // The page of the link: ours, whose slots we fire, or the peer's. Null if there is none, or it
  // has no slots.
  std::shared_ptr<LinkPage> PageWithSlots(PeerId peer, bool ours) const;

  // How a device's memory gets to UCX, ours or one of a peer whose link is up; "" of host devices.
  std::string UcxWay(GlobalDeviceId device) const;
  // What a peer whose link is up has said of a device of its; null if there is none.
  const PeerDeviceInfo* ToldOf(GlobalDeviceId device) const;

  // Whether what waits here for a partner at `device` may still hear of one that is there already:
  // the link is being opened, or is up for less than `settled`. False of our own.
  bool MayBringOffers(GlobalDeviceId device, absl::Duration settled) const;

  // --- From operators: opens the link to the owner of `device` if it is not up, and calls `done`
  // once it is, or could not be opened, or after kDialTimeout. At once if there is no such link.
  void WhenTried(GlobalDeviceId device, std::function<void()> done);

  // --- From gRPC: a stream that another daemon opened, after its introduction; and a knock.
  void OnAccepted(std::function<std::unique_ptr<PeerStream>(PeerStreamCallbacks)> accept,
                  std::function<void(absl::Status)> refuse, PeerIntroduction introduction);
  absl::Status OnKnock(const std::string& node);

  // Whether a daemon or socket of this uid may be a peer's; constant, any thread.
  bool TrustsUid(uint32_t uid) const;

  // --- From the peer port and lanes: a data connection with its preamble, of which nothing is
  // proven; the set of connections that shows that route `tcp` works is open, or could not be.
  void OnDataConnection(const std::string& preamble, UniqueFd socket);
  void OnTcpOpened(PeerId peer, uint64_t link_number, const absl::Status& status);

  // --- From a lane: its UCX has other addresses now, of which peers must be told.
  void OnUcxMoved(GlobalDeviceId device, std::optional<PeerId> to);

  // --- From peer.sock.
  void OnSocketRequest(Door::ConnectionId connection, const Credentials& credentials,
                       PeerSocketRequest request);
  void OnSocketResponse(PeerId peer, Door::ConnectionId connection, PeerSocketResponse response,
                        ReceivedFds fds);
  void OnSocketClosed(Door::ConnectionId connection);

  // --- From the session table.
  void OnArenaGone(ArenaId arena);

  // Heartbeats, silence, redials; when to be called again.
  absl::Time OnTime(absl::Time now);

  struct Row {
    std::string node;
    std::string address;  // "" of a stranger
    std::string state;
    Incarnation incarnation;
    std::string version;  // of its ferryd, while it is up
    std::string error;
    bool mapped = false;
    std::optional<absl::Time> drains_until;  // as it has told; none: it serves
    std::vector<GlobalDeviceId> devices;
    std::vector<DeviceInfo> told;  // of these, by its latest hello; empty before the first
  };
  std::vector<Row> List() const;
  // Said to all peers since the start, by road. Heartbeats are none.
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
  // Of a link whose other end we refuse.
  struct Parting {
    std::unique_ptr<PeerStream> stream;  // that we have opened; null: theirs, which has ended
    absl::Time since;
    // On peer.sock, ours and theirs: their end would be heard before the refusal. What is said
    // there counts no more.
    std::vector<Door::ConnectionId> sockets;
  };
  using Partings = std::map<uint64_t, Parting>;
  // Who came under a name that membership.nodes does not have.
  struct Stranger {
    std::string node;  // printable
    std::string why;
    absl::Time since;
  };

  // Whether of these two names it is ours that dials. The other daemon knocks, and dials itself if
  // that brings nothing.
  bool Dials(const Link& link) const;
  void Dial(Link& link, bool visiting = false);
  // When to visit next, if nobody here wants the link; does so if it is time.
  absl::Time Visit(Link& link, absl::Time now);
  // The visit was for nothing, which is no failure: the link is as it was before.
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
  // Whether arenas can be mapped, and whether `tcp` works, is known now: "", or why not.
  void Settle(Link& link, std::string mapped_error);
  void SettleTcp(Link& link, std::string error);
  // Once both are known.
  void GoUp(Link& link);
  // Tells lanes how to reach the peer's by UCX; whether any can.
  bool AddUcxPeers(Link& link);
  void StartUcx(Link& link);
  void StopUcx(Link& link, const absl::Status& why);
  void OnMoved(Link& link, std::vector<PeerDeviceInfo> moved);
  void StartTcp(Link& link);
  void StopTcp(Link& link, const absl::Status& why);
  void Lose(Link& link, const absl::Status& why);
  void LoseOnceRead(Link& link, const absl::Status& why);
  // Loses a link, and has the other end told why.
  void Reject(Link& link, const absl::Status& why);
  void Part(Link& link, const absl::Status& why);
  bool IsParting(Door::ConnectionId socket) const;
  void EndParting(Partings::iterator parting);
  absl::Time DropLatePartings(absl::Time now);
  // The link cannot be opened, by what either end has found; one that is open is not touched.
  void OnRefused(Link& link, const absl::Status& why);
  static absl::Status Unproven(const Link& link, const absl::Status& refusal);
  // Remembers and logs it; `why`.
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
  // In the log, if there is news in it.
  void Say(Link& link, const absl::Status& why, bool goodbye);
  Link* FindByNode(const std::string& node);
  // Null: ourselves, or one that was removed, of whom nothing counts any more that comes late.
  Link* Find(PeerId peer) const { return links_[peer.value()].get(); }

  Executor& control_;
  LocalDevices& devices_;
  SessionTable& sessions_;
  const PeerId self_;
  std::vector<GlobalDeviceId> own_ids_;  // by membership, also of GPUs that are missing
  const Options options_;
  const Hooks hooks_;
  const std::string boot_id_;
  TransferDriver* driver_ = nullptr;
  PeerDialer* dialer_ = nullptr;
  bool leaving_ = false;
  bool stopped_ = false;
  std::function<void()> gone_;                // SayGoodbye's, as long as somebody is left
  std::vector<std::unique_ptr<Link>> links_;  // by PeerId; null: see Find
  uint64_t streams_ = 0;                      // so far, of links and callers
  uint64_t last_knock_ = 0;
  Callers callers_;                  // by their streams' numbers, the oldest first
  Partings partings_;                // the same
  std::vector<Stranger> strangers_;  // the latest last
  Frames frames_;
  // Which link an incoming peer.sock connection proved to be of.
  absl::flat_hash_map<Door::ConnectionId, PeerId> socket_peers_;
  absl::flat_hash_map<ArenaId, std::vector<PeerId>> granted_to_;
  // The peers' link pages, read by lanes; by PeerId.
  struct Page {
    std::string node;
    std::shared_ptr<LinkPage> page;
  };
  mutable Mutex pages_mutex_;
  std::vector<Page> pages_ ABSL_GUARDED_BY(pages_mutex_);
};

}  // namespace ferry
