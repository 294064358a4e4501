// SPDX-License-Identifier: Apache-2.0
// The `tcp` route: bytes of transfers go over connections of our own, from arena to socket and from
// socket to arena, in messages with many buffers (tcp_wire.h). Each end runs its half (kSend,
// kReceive), posted or prepared.
//
// A lane has a set of connections to each device of a peer. It is opened when first needed, by the
// daemon that dials the link of the two. One connection of the set carries small transfers
// (kSmallBytes) and what the ends say to each other; the others carry large transfers. When one
// connection ends, the whole set does, and the ops under way on it end with ABORTED/COMM_ABORTED;
// the next op opens another set. Nothing here waits for a peer: an aborted op is answered at once,
// or when the copies of its bytes from or to a GPU are over.
//
// GPU memory goes by way of host memory (transfer/staging). Home: the lane, but for constructor and
// destructor.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/fd.h"
#include "device/lane.h"
#include "transfer/staging/host_staging.h"
#include "transfer/tcp/tcp_wire.h"
#include "transfer/transport.h"

namespace ferry {

struct TcpAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;  // 0: none
  // Parses "10.0.0.1:7411" or "[::1]:7411". INVALID_ARGUMENT for anything else, host names too.
  static absl::StatusOr<TcpAddress> Parse(absl::string_view text);
};

// Another daemon while the link with it is up.
struct TcpPeer {
  PeerId id;
  uint64_t link = 0;        // number of the link, for Hooks::opened
  std::string name;         // for people
  std::string secret;       // of the link; both ends know it
  TcpAddress address = {};  // where the peer is dialled; none: the peer dials
  std::vector<GlobalDeviceId> devices;
};

class TcpTransport : public Transport {
 public:
  struct Options {
    // Connections of a set for large transfers; 1 to kTcpMostConnections - 1.
    uint32_t bulk_connections = 2;
    // How long a set may take to open.
    absl::Duration open_deadline = absl::Seconds(5);
  };
  struct Hooks {
    OpSink sink;
    // A set of connections to a device of a peer is open, or could not be opened. On the lane.
    std::function<void(PeerId, uint64_t link, const absl::Status&)> opened;
  };
  // The largest transfer that goes over the connection for small ones.
  static constexpr uint64_t kSmallBytes = uint64_t{32} << 10;

  // `device` is the lane's device. `staging`: GPUs only; outlives this. Waits for the lane.
  static std::unique_ptr<TcpTransport> Create(Lane& lane, GlobalDeviceId device, Options options,
                                              Hooks hooks, GpuStaging* staging = nullptr);
  // Answers all ops and closes all connections; waits for the lane.
  ~TcpTransport() override;

  // --- Lane only.
  // The link with the peer is up. Before any op names the peer.
  void AddPeer(TcpPeer peer);
  // The link is lost: every op with the peer ends (ABORTED/PEER_UNREACHABLE), its connections are
  // closed.
  void RemovePeer(PeerId peer, const absl::Status& why);
  // Opens the set to a device of a peer that this daemon dials, if it is not open. Hooks::opened
  // follows.
  void Open(PeerId peer, GlobalDeviceId device);
  // Takes a connection that the peer has dialled and proven to be for this lane's device. Closes a
  // connection that is not needed any more, or that is of a link that was lost since.
  void Accept(PeerId peer, const TcpPreamble& preamble, UniqueFd socket);
  void Launch(std::vector<TransportOp> ops) override;
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) override;

 private:
  struct Impl;
  explicit TcpTransport(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
