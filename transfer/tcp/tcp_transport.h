// SPDX-License-Identifier: Apache-2.0
// The `tcp` route: the bytes of transfers over connections of our own, from arena to socket and
// from socket to arena, in messages of many buffers (tcp_wire.h). Both ends run their half (kSend,
// kReceive), posted or prepared.
//
// A lane has a set of connections to each device of a peer, opened when first needed by the daemon
// that dials the link of the two. One carries what is small (kSmallBytes) and what the ends say to
// each other, the others what is large. When one of them ends, the set does, and with it what was
// under way on it (ABORTED/COMM_ABORTED); the next op opens another set. Nothing here waits for a
// peer: an op that is aborted is answered at once, or when the copies of its bytes from or to a GPU
// are over.
//
// Memory of a GPU goes by way of host memory (transfer/staging).
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
  // Of "10.0.0.1:7411" or "[::1]:7411"; INVALID_ARGUMENT for anything else, names among it.
  static absl::StatusOr<TcpAddress> Parse(absl::string_view text);
};

// Another daemon while the link with it is up.
struct TcpPeer {
  PeerId id;
  uint64_t link = 0;        // which one, for Hooks::opened
  std::string name;         // for people
  std::string key;          // of the link, both ends' secret
  TcpAddress address = {};  // where it is dialled; none if it dials
  std::vector<GlobalDeviceId> devices;
};

class TcpTransport : public Transport {
 public:
  struct Options {
    uint32_t bulk_connections = 2;  // of a set, for what is large; 1 to kTcpMostConnections - 1
    // How long a set may take to open.
    absl::Duration open_deadline = absl::Seconds(5);
  };
  struct Hooks {
    OpSink sink;
    // A set of connections with a device of a peer is open, or could not be opened. On the lane.
    std::function<void(PeerId, uint64_t link, const absl::Status&)> opened;
  };
  // What goes over the connection for small things.
  static constexpr uint64_t kSmallBytes = uint64_t{32} << 10;

  // `device`: whose lane it is. `staging`: of a GPU; outlives this. Waits for the lane.
  static std::unique_ptr<TcpTransport> Create(Lane& lane, GlobalDeviceId device, Options options,
                                              Hooks hooks, GpuStaging* staging = nullptr);
  // Answers everything, closes all connections; waits for the lane.
  ~TcpTransport() override;

  // --- Lane only.
  // A link is up. Before any op names the peer.
  void AddPeer(TcpPeer peer);
  // It is lost: every op with it ends (ABORTED/PEER_UNREACHABLE), its connections are closed.
  void RemovePeer(PeerId peer, const absl::Status& why);
  // Opens the set to a device of a peer that is dialled, if it is not open; Hooks::opened follows.
  void Open(PeerId peer, GlobalDeviceId device);
  // A connection that the peer has dialled and proven to be of this lane's device. A connection
  // that is not needed any more, or of a link that was lost since, is closed.
  void Accept(PeerId peer, const TcpPreamble& preamble, UniqueFd socket);
  void Launch(std::vector<TransportOp> ops) override;
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) override;

 private:
  struct Impl;
  explicit TcpTransport(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
