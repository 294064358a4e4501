// SPDX-License-Identifier: Apache-2.0
// The links of this daemon to all other daemons. PeerTable opens a link when it is first needed,
// loses a link whose stream is closed or whose peer is silent, and opens it again. The daemon whose
// node name is smaller dials; the other daemon knocks to be dialled. Each end proves who it is.
// Before that nothing that it says counts, and it is told no more than our introduction.
//
// A link is up, and the driver is told so, when hellos are exchanged, it is known whether the
// peer's arenas can be mapped, and each LinkRoute knows whether its route works.
//
// PeerTable finds out which link, or which caller, something is of; it refuses who is of neither.
// It owns the links (PeerLink) and what they share, the callers, the partings and the strangers.
// Home: control.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/closer.h"
#include "base/executor.h"
#include "base/fd.h"
#include "base/home.h"
#include "base/ids.h"
#include "daemon/door.h"
#include "daemon/local_devices.h"
#include "daemon/peer/callers.h"
#include "daemon/peer/introduction.h"
#include "daemon/peer/lent_arenas.h"
#include "daemon/peer/link_frames.h"
#include "daemon/peer/link_pages.h"
#include "daemon/peer/link_routes.h"
#include "daemon/peer/own_socket.h"
#include "daemon/peer/partings.h"
#include "daemon/peer/peer_link.h"
#include "daemon/peer/peer_socket.h"
#include "daemon/peer/peer_stream.h"
#include "daemon/peer/socket_hooks.h"
#include "daemon/peer/strangers.h"
#include "daemon/peer/their_sockets.h"
#include "daemon/session/session_table.h"
#include "daemon/transfer_driver.h"
#include "transfer/mapped/link_page.h"

namespace ferry {

class PeerTable {
 public:
  struct Options : OwnDaemon, LinkRoutes::Options {
    // A link that nobody here wants is dialled at this interval all the same (a visit): the other
    // daemon may want it and be unable to dial. Infinite: no visits.
    absl::Duration visit_every = absl::Seconds(5);
  };
  using Hooks = PeerSocketHooks;
  using Row = PeerRow;
  // Visits (Options::visit_every) to different peers are at least this far apart. So with many
  // peers each is visited less often.
  static constexpr absl::Duration kVisitGap = absl::Milliseconds(100);

  // `peers` is indexed by PeerId; the entry of this daemon itself is ignored.
  PeerTable(Executor& control, LocalDevices& devices, SessionTable& sessions, PeerId self,
            std::vector<PeerConfig> peers, Options options, Hooks hooks);
  ~PeerTable();
  // Must be called before any other function. Both pointers outlive the table.
  void Connect(TransferDriver* driver, PeerDialer* dialer) {
    home_.Check();
    shared_.driver = driver;
    shared_.dialer = dialer;
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
  absl::Status StillValid(PeerId peer) const {
    return peer == self_ ? absl::OkStatus() : pages_.StillValid(peer);
  }

  // The incarnation of this daemon, or of the peer as it was when the link last came up.
  Incarnation IncarnationOf(PeerId peer) const;

  // The link page of the link to `peer` (with `ours` the page that we made and whose slots we fire,
  // else the peer's page). Null if there is no such page, or it has no slots.
  std::shared_ptr<LinkPage> PageWithSlots(PeerId peer, bool ours) const {
    return pages_.WithSlots(peer, ours);
  }

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
  // the link is up or could not be opened, at the latest after PeerLink::kDialTimeout. Calls it at
  // once if the link is up or `device` is no peer's.
  void WhenTried(GlobalDeviceId device, std::function<void()> done);

  // --- From gRPC: another daemon has opened a stream and introduced itself; another daemon has
  // knocked. OnAccepted calls either `accept` or `refuse`.
  void OnAccepted(std::function<std::unique_ptr<PeerStream>(PeerStreamCallbacks)> accept,
                  std::function<void(absl::Status)> refuse, PeerIntroduction introduction);
  absl::Status OnKnock(const std::string& node);

  // Whether processes of this uid may be peers or connect to peer.sock. Constant; any thread.
  bool TrustsUid(uint32_t uid) const { return options_.TrustsUid(uid); }

  // --- From the peer port and lanes. OnDataConnection: a data connection has arrived with its
  // preamble, of which nothing is proven yet. OnTcpOpened: the connections that a lane opens to try
  // route `tcp` are open, or could not be opened.
  void OnDataConnection(const std::string& preamble, UniqueFd socket) {
    home_.Check();
    routes_.tcp().OnDataConnection(preamble, std::move(socket));
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

  std::vector<Row> List() const;
  const FrameCounts& frames() const { return shared_.frames; }

 private:
  // Null for this daemon itself and for a peer that was removed: whatever comes late of it then
  // counts no more.
  PeerLink* Find(PeerId peer) const { return links_[peer.value()].get(); }
  PeerLink* FindByNode(const std::string& node) const;
  PeerLink* FindByDevice(GlobalDeviceId device) const;
  void SetVisitPause();
  PeerStreamCallbacks CallbacksFor(PeerId peer, uint64_t number);
  void OnCallerFrame(uint64_t number, const Callers::Caller& caller, PeerFrame frame);
  // A caller has proven who it is (`material`: as PeerLinkSecret). If the result is OK its stream
  // is the link's, else it is still a caller: another daemon of its name is alive.
  absl::Status TakeOver(uint64_t number, const std::string& material);
  void OnSocketHello(Door::ConnectionId connection, const Credentials& credentials,
                     uint64_t sequence, const PeerSocketHello& hello);
  void LookWhoIsLeft();

  Executor& control_;
  LocalDevices& devices_;
  const PeerId self_;
  const Options options_;
  const Hooks hooks_;
  LinkRoutes routes_;
  LinkPages pages_;
  LentArenas lent_;
  Partings partings_;
  OwnSocket own_socket_;
  TheirSockets their_sockets_;
  Callers callers_;
  Strangers strangers_;
  PeerLink::Shared shared_;
  bool stopped_ = false;
  std::function<void()> gone_;  // SayGoodbye's `done`, until no proven link is left
  std::vector<std::unique_ptr<PeerLink>> links_;  // by PeerId; null: see Find
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
