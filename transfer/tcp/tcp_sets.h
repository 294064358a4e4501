// SPDX-License-Identifier: Apache-2.0
// TcpSets has the links to the devices of peers, and the set of connections of each: dialled or
// accepted, proven, watched, closed. A set is open when all its connections are, and ends with any
// of them. A set that cannot be opened ends its ops in a way that lets another route be tried, and
// for a while the link refuses ops.
//
// It refuses a connection that no link with its peer waits for. What goes over an open set is for
// TcpSends and TcpReceives.
//
// Home: the lane. Owner: TcpTransport; TcpSends and TcpReceives call. Owns links and connections.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/home.h"
#include "base/ids.h"
#include "transfer/tcp/due_connections.h"
#include "transfer/tcp/tcp_device_link.h"
#include "transfer/tcp/tcp_ops.h"
#include "transfer/tcp/tcp_staging.h"
#include "transfer/tcp/tcp_transport.h"
#include "transfer/tcp/tcp_wire.h"

namespace ferry {

class TcpSets {
 public:
  using Opened = std::function<void(PeerId, uint64_t link, const absl::Status&)>;
  // `opened`: TcpTransport::Hooks::opened.
  TcpSets(GlobalDeviceId device, TcpTransport::Options options, Opened opened, TcpOps& ops,
          TcpStaging& staging, DueConnections& due);

  // --- Peers: see TcpTransport.

  void AddPeer(const TcpPeer& peer);
  void RemovePeer(PeerId peer, const absl::Status& why);
  // Null: the link with the device's daemon was lost.
  TcpDeviceLink* Find(PeerId peer, GlobalDeviceId device) const;

  // --- Sets.

  // Opens the set of a link that has none. If this fails at once the link's ops have ended.
  void Open(TcpDeviceLink& link);
  // A connection that the peer has dialled and proven.
  void Accept(PeerId peer, const TcpPreamble& preamble, UniqueFd socket);
  // A set that was open has failed: its ops end.
  void Fail(TcpDeviceLink& link, absl::string_view why);
  // Ends all ops and closes all sets.
  void CloseAll(const absl::Status& why);

  // --- Events of connections, and of time.

  // Handles pending socket events and timers; false if there were none.
  bool Poll();
  int EventFd() const { return epoll_.get(); }
  // Nobody further up the stack looks at closed connections any more.
  void DropClosed() {
    home_.Check();
    closed_.clear();
  }
  bool has_closed() const { return !closed_.empty(); }

 private:
  absl::Status Connect(TcpConnection& connection);
  void Watch(TcpConnection& connection);
  void OnEvent(TcpConnection& connection, uint32_t events);
  void OnConnected(TcpConnection& connection);
  void Prove(TcpConnection& connection);
  // The peer takes no more strangers at once, or does not know the link yet: dials again in a
  // moment.
  void Redial(TcpConnection& connection);
  void OpenIfWhole(TcpDeviceLink& link);
  // A set could not be opened.
  void FailOpening(TcpDeviceLink& link, absl::Status why);
  void Close(TcpDeviceLink& link);
  void SetTimer(absl::Time at);
  void OnTimer();

  const GlobalDeviceId device_;
  const TcpTransport::Options options_;
  const Opened opened_;
  TcpOps& ops_;
  TcpStaging& staging_;
  DueConnections& due_;
  UniqueFd epoll_;  // watches connections and the timer
  UniqueFd timer_;
  absl::Time timer_at_ = absl::InfiniteFuture();
  absl::flat_hash_map<TcpDeviceLink::Key, std::unique_ptr<TcpDeviceLink>> links_;
  // Closed connections that a caller further up the stack may still look at.
  std::vector<std::unique_ptr<TcpConnection>> closed_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
