// SPDX-License-Identifier: Apache-2.0
// The daemon's sockets: what is listened on, and where what arrives goes.
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/closer.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/status.h"
#include "daemon/daemon_impl.h"
#include "daemon/metrics_http.h"
#include "daemon/peer/peer_path.h"
#include "daemon/peer/peer_port.h"
#include "daemon/rpc/attach_codec.h"

namespace ferry {
namespace {

absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kRouteUnavailable,
                 absl::StrCat("the path ", Printable(path), " is too long for a socket"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid() ||
      connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoError(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                      absl::StrCat("connect to ", Printable(path)), errno);
  }
  return socket;
}

}  // namespace

void Daemon::Impl::ToControl(const Door::Packet& packet, Task task) {
  constexpr size_t kLong = 4096;  // bytes; some 50 transfers
  // The door is needed to read what comes next while control is at a long one.
  packet.bytes.size() > kLong ? control.PostLong(std::move(task))
                              : control.PostOrRun(std::move(task));
}

absl::StatusOr<Door::ConnectionId> Daemon::Impl::ConnectToPeer(PeerId peer,
                                                               const std::string& path) {
  RETURN_IF_ERROR(CheckPeerPath(path, [this](uid_t uid) { return peers->TrustsUid(uid); }));
  ASSIGN_OR_RETURN(UniqueFd socket, ConnectUnix(path));
  ASSIGN_OR_RETURN(const Credentials credentials, PeerCredentials(socket.get()));
  if (!peers->TrustsUid(credentials.uid)) {
    // They may have sent descriptors already.
    shutdown(socket.get(), SHUT_RDWR);
    Closer::Get().Close(credentials.uid, std::move(socket));
    return Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
                 absl::StrCat("connect to ", Printable(path), ": uid ", credentials.uid,
                              " listens there, which peer.uids does not list"));
  }
  return door.AddPackets(
      std::move(socket), UniqueFd(),
      [this, peer](Door::ConnectionId connection, Door::Packet packet) {
        absl::StatusOr<PeerSocketResponse> response = ParsePeerSocketResponse(packet.bytes);
        if (!response.ok() || packet.truncated || packet.fds_lost) {
          door.Close(connection);
          control.Post([this, connection] { peers->OnSocketClosed(connection); });
          return;
        }
        control.Post([this, peer, connection, response = *std::move(response),
                      fds = std::move(packet.fds)]() mutable {
          peers->OnSocketResponse(peer, connection, std::move(response), std::move(fds));
        });
      },
      [this](Door::ConnectionId connection) {
        control.Post([this, connection] { peers->OnSocketClosed(connection); });
      },
      Admission::Pass(credentials.uid));
}

absl::StatusOr<UniqueFd> Daemon::Impl::Listener(const char* name, const char* file, int type,
                                                SocketAccess access, Descriptors descriptors) {
  const std::string path = Path(file);
  if (const auto found = given.find(name); found != given.end()) {
    UniqueFd socket = std::move(found->second);
    given.erase(found);
    return AdoptUnix(std::move(socket), name, path, type, descriptors);
  }
  absl::StatusOr<UniqueFd> listener = ListenUnix(path, type, access, descriptors);
  if (listener.ok()) own_sockets.push_back(path);
  return listener;
}

absl::StatusOr<Daemon::Impl::Listeners> Daemon::Impl::OpenListeners() {
  Listeners all;
  ASSIGN_OR_RETURN(const SocketAccess clients, SocketAccess::From(config.sockets.client));
  ASSIGN_OR_RETURN(const SocketAccess operators, SocketAccess::From(config.sockets.admin));
  ASSIGN_OR_RETURN(all.attach, Listener("attach", "client/attach.sock", SOCK_SEQPACKET, clients,
                                        Descriptors::kTaken));
  ASSIGN_OR_RETURN(all.client, Listener("client", "client/client.sock", SOCK_STREAM, clients,
                                        Descriptors::kRefused));
  ASSIGN_OR_RETURN(all.admin, Listener("admin", "admin/admin.sock", SOCK_STREAM, operators,
                                       Descriptors::kRefused));
  ASSIGN_OR_RETURN(all.metrics, Listener("metrics", "admin/metrics.sock", SOCK_STREAM, operators,
                                         Descriptors::kRefused));
  ASSIGN_OR_RETURN(all.peer_socket,
                   Listener("peer", "peer/peer.sock", SOCK_SEQPACKET,
                            config.peer.uids.empty() ? 0600 : 0666, Descriptors::kRefused));
  if (peer_server != nullptr) {
    ASSIGN_OR_RETURN(all.peer_tcp, ListenTcp(config.peer.listen));
    peer_port = BoundPort(all.peer_tcp.get());
  }
  if (!config.metrics.listen.empty()) {
    ASSIGN_OR_RETURN(all.metrics_tcp, ListenTcp(config.metrics.listen));
  }
  return all;
}

void Daemon::Impl::ServeGrpc(UniqueFd client, UniqueFd admin_socket) {
  const auto to_grpc = [this](std::function<void(uid_t, int fd)> serve, absl::Duration patience) {
    return [this, serve = std::move(serve), patience](UniqueFd socket, Admission::Pass pass) {
      absl::StatusOr<Credentials> credentials = PeerCredentials(socket.get());
      if (!credentials.ok()) return;
      absl::StatusOr<int> fd = connections.Admit(std::move(socket), *credentials, std::move(pass),
                                                 control.Now() + patience);
      if (!fd.ok()) {
        FERRY_LOG_LIMITED(warn, "connection.refused",
                          LogFields("pid", credentials->pid, "uid", credentials->uid), "{}",
                          std::string(fd.status().message()));
        return;
      }
      if (patience < absl::InfiniteDuration()) control.Post([] {});  // as in ServePeers
      serve(credentials->uid, *fd);
    };
  };
  door.Listen("client.sock", std::move(client),
              to_grpc([this](uid_t user, int fd) { client_servers->Serve(user, fd); },
                      SocketBounds::kFirstCall),
              &socket_bounds.client);
  door.Listen("admin.sock", std::move(admin_socket),
              to_grpc([this](uid_t, int fd) { admin_server->Serve(fd); }, absl::InfiniteDuration()),
              &socket_bounds.admin);
}

void Daemon::Impl::ServePeers(UniqueFd peer_tcp) {
  PeerPortHooks hooks;
  hooks.link = [this](UniqueFd socket, Admission::Pass pass) {
    absl::StatusOr<int> fd =
        peer_connections.Admit(std::move(socket), Credentials{}, std::move(pass),
                               control.Now() + SocketBounds::kIntroductionTime);
    if (!fd.ok()) return;
    control.Post([] {});  // AfterTasks is to know of the time
    peer_server->Serve(*fd);
  };
  // It counts as a stranger's until it has proven what it is of.
  hooks.data = [this](std::string preamble, UniqueFd socket, Admission::Pass pass) {
    control.Post([this, preamble = std::move(preamble), socket = std::move(socket),
                  pass = std::move(pass)]() mutable {
      peers->OnDataConnection(preamble, std::move(socket));
    });
  };
  door.Listen("peer port", std::move(peer_tcp), ServePeerPort(door, std::move(hooks)),
              &socket_bounds.strangers);
}

void Daemon::Impl::ServeMetricsPage(UniqueFd metrics, UniqueFd metrics_tcp) {
  const auto metrics_text = [this] { return MetricsPage(); };
  door.Listen("metrics.sock", std::move(metrics),
              ServeMetrics(door, control, metrics_text, absl::ZeroDuration()),
              &socket_bounds.metrics);
  if (metrics_tcp.valid()) {
    door.Listen("metrics port", std::move(metrics_tcp),
                ServeMetrics(door, control, metrics_text, kPageAge), &socket_bounds.metrics_port);
  }
}

void Daemon::Impl::OnPeerSocketPacket(Door::ConnectionId connection, const Credentials& who,
                                      const Door::Packet& packet) {
  absl::StatusOr<PeerSocketRequest> request = ParsePeerSocketRequest(packet.bytes);
  if (!request.ok() || packet.truncated) {  // descriptors nobody asked for may be lost
    FERRY_LOG_LIMITED(warn, "peer_socket.garbage", LogFields("pid", who.pid, "uid", who.uid),
                      "sent no request; closed");
    PeerSocketResponse response;
    response.error = request.ok()
                         ? Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError,
                                 "peer.sock: the packet is too long")
                         : request.status();
    door.Send(connection, EncodePeerSocket(response));
    door.Close(connection);
    control.Post([this, connection] { peers->OnSocketClosed(connection); });
    return;
  }
  // As a post of a client: what the peer says is not kept waiting for a thread to wake.
  ToControl(packet, [this, connection, who, request = *std::move(request)]() mutable {
    peers->OnSocketRequest(connection, who, std::move(request));
  });
}

void Daemon::Impl::ServePeerSocket(UniqueFd listener) {
  const auto on_peer_socket = [this](UniqueFd socket, Admission::Pass pass) {
    absl::StatusOr<Credentials> credentials = PeerCredentials(socket.get());
    if (!credentials.ok()) return;
    const Door::ConnectionId added = door.AddPackets(
        std::move(socket), UniqueFd(),
        [this, who = *credentials](Door::ConnectionId connection, Door::Packet packet) {
          OnPeerSocketPacket(connection, who, packet);
        },
        [this](Door::ConnectionId connection) {
          control.Post([this, connection] { peers->OnSocketClosed(connection); });
        },
        std::move(pass));
    if (!peers->TrustsUid(credentials->uid)) door.MayGiveWay(added);  // none of the daemons'
  };
  door.Listen("peer.sock", std::move(listener), on_peer_socket, &socket_bounds.peer_socket);
}

void Daemon::Impl::OnAttachPacket(Door::ConnectionId connection, const Credentials& who,
                                  Door::Packet packet) {
  absl::StatusOr<AttachCommand> command = ParseAttach(packet.bytes);
  if (packet.truncated) {
    command = Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError,
                    absl::StrCat("attach.sock: a packet has at most ", Door::kMaxPacket,
                                 " bytes and ", Door::kMaxFds, " descriptors"));
  }
  // A post is not kept waiting for a thread to wake, if control has nothing else to do.
  ToControl(packet, [this, connection, who, command = std::move(command), lost = packet.fds_lost,
                     fds = std::move(packet.fds)]() mutable {
    if (!command.ok()) {
      sessions->OnGarbage(connection, who, command.status());
    } else if (lost) {
      sessions->OnFdsLost(connection, who, *command);
    } else {
      sessions->OnCommand(connection, who, *std::move(command), std::move(fds));
    }
  });
}

void Daemon::Impl::ServeSessions(UniqueFd attach) {
  const auto on_attach = [this](UniqueFd socket, Admission::Pass pass) {
    absl::StatusOr<Credentials> credentials = PeerCredentials(socket.get());
    if (!credentials.ok()) return;
    UniqueFd process = PeerPidFd(socket.get(), credentials->pid);
    const Door::ConnectionId connection = door.AddPackets(
        std::move(socket), std::move(process),
        [this, who = *credentials](Door::ConnectionId connection, Door::Packet packet) {
          OnAttachPacket(connection, who, std::move(packet));
        },
        [this](Door::ConnectionId connection) {
          control.Post([this, connection] { sessions->OnClosed(connection); });
        },
        std::move(pass));
    control.Post(
        [this, connection, who = *credentials] { sessions->OnConnected(connection, who); });
  };
  door.Listen("attach.sock", std::move(attach), on_attach, &socket_bounds.attach,
              [](const absl::Status& why) {
                AttachReply reply;
                reply.error = why;
                return EncodeAttach(reply);
              });
}

absl::Status Daemon::Impl::OpenDoor() {
  ASSIGN_OR_RETURN(Listeners listeners, OpenListeners());
  ServeGrpc(std::move(listeners.client), std::move(listeners.admin));
  if (listeners.peer_tcp.valid()) ServePeers(std::move(listeners.peer_tcp));
  ServeMetricsPage(std::move(listeners.metrics), std::move(listeners.metrics_tcp));
  ServePeerSocket(std::move(listeners.peer_socket));
  ServeSessions(std::move(listeners.attach));
  return absl::OkStatus();
}

}  // namespace ferry
