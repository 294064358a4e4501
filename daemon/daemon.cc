// SPDX-License-Identifier: Apache-2.0
#include "daemon/daemon.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/door.h"
#include "daemon/dump.h"
#include "daemon/local_devices.h"
#include "daemon/metrics.h"
#include "daemon/metrics_http.h"
#include "daemon/peer_table.h"
#include "daemon/rpc/admin_service.h"
#include "daemon/rpc/attach_codec.h"
#include "daemon/rpc/client_services.h"
#include "daemon/rpc/connection_table.h"
#include "daemon/rpc/core.h"
#include "daemon/rpc/grpc_server.h"
#include "daemon/rpc/health_service.h"
#include "daemon/rpc/peer_rpc.h"
#include "daemon/rpc/reflection_service.h"
#include "daemon/session_table.h"
#include "daemon/transfer_driver.h"
#include "device/host/copy.h"

namespace ferry {
namespace {

Incarnation NewIncarnation() {
  uint64_t value = 0;
  FERRY_CHECK(getrandom(&value, sizeof(value), 0) == sizeof(value));
  return Incarnation(value);
}

// Each session needs a few descriptors, so take all the limit allows.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

absl::Status MakeDirectory(const std::string& path, mode_t mode) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error || chmod(path.c_str(), mode) != 0) {
    return Error(absl::StatusCode::kPermissionDenied, Reason::kConfigInvalid,
                 absl::StrCat("make the directory ", path, ": ",
                              error ? error.message() : std::string(strerror(errno)),
                              "; choose another node.runtime_dir or run with the right to it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kRouteUnavailable,
                 absl::StrCat("the path ", path, " is too long for a socket"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid() ||
      connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoError(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                      absl::StrCat("connect to ", path), errno);
  }
  return socket;
}

}  // namespace

struct Daemon::Impl {
  explicit Impl(Config c)
      : config(std::move(c)),
        incarnation(NewIncarnation()),
        control("control"),
        connections(config.limits.connections_per_uid) {}

  absl::Status Start();
  absl::Status MakeDevices();
  void MakeTables();
  absl::Status MakeServers();
  absl::Status OpenDoor();
  absl::Time AfterBatch();
  std::string MetricsPage();
  void StartDrain(absl::Duration timeout, std::function<void(uint64_t)> done);
  void Stop();

  std::string Path(const char* name) const { return absl::StrCat(config.node.runtime_dir, "/", name); }
  bool has_peers() const { return config.membership.nodes.size() > 1; }

  const Config config;
  const Incarnation incarnation;
  const absl::Time started = MonotonicNow();
  std::string ucx_version;  // "" if there is none
  std::string ucx_missing;
  CopyHelper copy_helper;
  SerialExecutor control;
  ConnectionTable connections;
  LocalDevices devices;
  std::unique_ptr<SessionTable> sessions;
  std::unique_ptr<PeerTable> peers;
  std::unique_ptr<TransferDriver> driver;
  std::unique_ptr<PeerDialer> dialer;
  // Control's.
  std::vector<Task> later;
  bool draining = false;
  absl::Time drain_deadline;
  uint64_t drain_cancelled = 0;
  bool drain_expired = false;
  std::vector<std::function<void(uint64_t)>> drain_waiters;

  std::unique_ptr<RpcCore> rpc;
  std::unique_ptr<AdminCore> admin;
  HealthService health;
  std::vector<std::unique_ptr<grpc::Service>> services;
  std::unique_ptr<GrpcServer> client_server, admin_server, peer_server;
  int peer_port = 0;
  Door door;  // last: stopped first
};

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(Config config) {
  auto impl = std::make_unique<Impl>(std::move(config));
  absl::Status started = impl->Start();
  auto daemon = std::unique_ptr<Daemon>(new Daemon(std::move(impl)));
  RETURN_IF_ERROR(started);
  return daemon;
}

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Daemon::~Daemon() { impl_->Stop(); }
int Daemon::peer_port() const { return impl_->peer_port; }

absl::Status Daemon::Impl::Start() {
  RaiseDescriptorLimit();
  RETURN_IF_ERROR(MakeDirectory(config.node.runtime_dir, 0755));
  RETURN_IF_ERROR(MakeDirectory(Path("client"), 0755));
  RETURN_IF_ERROR(MakeDirectory(Path("admin"), 0750));
  RETURN_IF_ERROR(MakeDirectory(Path("peer"), 0755));
  RETURN_IF_ERROR(MakeDevices());
  MakeTables();
  RETURN_IF_ERROR(MakeServers());
  control.SetAfterBatch([this] { return AfterBatch(); });
  RETURN_IF_ERROR(OpenDoor());
  for (const char* service : {"", "startup", "readiness", "liveness", "ferry.v1.TransferService"}) {
    health.SetServing(service, true);
  }
  FlightRecorder::Get().Record("daemon.start", incarnation.value(), config.OwnIds().size(), 0,
                               config.node.name);
  FERRY_LOG(info, "daemon.start", "node {} version {} {} in {} with {} host devices, ucx {}",
            config.node.name, FERRY_VERSION, incarnation.ToString(), config.node.runtime_dir,
            devices.list.size(), ucx_version.empty() ? ucx_missing : ucx_version);
  return absl::OkStatus();
}

absl::Status Daemon::Impl::MakeDevices() {
  const UcxApi* ucx = nullptr;
  const auto& order = config.transfer.order;
  if (!has_peers()) {
    ucx_missing = "not opened: this node is alone";
  } else if (std::find(order.begin(), order.end(), Route::kUcx) == order.end()) {
    ucx_missing = "not opened: transfer.order does not name ucx";
  } else if (absl::StatusOr<const UcxApi*> api = LoadUcx(); api.ok()) {
    ucx = *api;
    ucx_version = UcxVersion(*ucx);
  } else {
    ucx_missing = std::string(api.status().message());
  }
  const std::vector<GlobalDeviceId> ids = config.OwnIds();
  for (size_t i = 0; i < ids.size(); ++i) {
    auto device = std::make_unique<LocalDevice>();
    device->id = ids[i];
    device->name = absl::StrCat("host", i);
    device->memory = std::make_unique<SerialExecutor>(absl::StrCat("memory ", ids[i].value()));
    device->lane = std::make_unique<Lane>(absl::StrCat("lane ", ids[i].value()), Lane::DefaultSpin());
    const OpSink sink = [this](std::vector<OpResult> results) {
      control.Post([this, results = std::move(results)]() mutable { driver->OnResults(std::move(results)); });
    };
    device->copy = std::make_unique<CopyTransport>(*device->lane, copy_helper, sink,
                                                   [this](PeerId peer) { return peers->StillValid(peer); });
    if (ucx != nullptr) {
      UcxOptions options;
      options.shm_tls = config.transfer.ucx.shm_tls;
      options.net_tls = config.transfer.ucx.net_tls;
      options.net_devices = config.transfer.ucx.net_devices;
      absl::StatusOr<std::unique_ptr<UcxTransport>> transport =
          UcxTransport::Create(*ucx, options, *device->lane, sink);
      if (transport.ok()) {
        device->ucx = *std::move(transport);
      } else {
        FERRY_LOG(warn, "ucx.unavailable", "{}: {}", ids[i].ToString(),
                  std::string(transport.status().message()));
        ucx_version.clear();
        ucx_missing = std::string(transport.status().message());
      }
    }
    devices.list.push_back(std::move(device));
  }
  return absl::OkStatus();
}

void Daemon::Impl::MakeTables() {
  // PeerIds are positions in membership's list; a node that is alone is its only entry.
  std::vector<PeerConfig> nodes;
  DeviceMap map;
  for (const Config::Node& node : config.membership.nodes) nodes.push_back({node.name, node.address, node.ids});
  if (nodes.empty()) nodes.push_back({config.node.name, "", config.OwnIds()});
  for (size_t i = 0; i < nodes.size(); ++i) {
    const PeerId id(static_cast<uint32_t>(i));
    if (nodes[i].node == config.node.name) map.self = id;
    map.node_names.push_back(nodes[i].node);
    for (const GlobalDeviceId device : nodes[i].devices) map.owner[device] = id;
  }

  SessionTable::Options session_options;
  session_options.node = config.node.name;
  session_options.incarnation = incarnation;
  session_options.quota = {config.limits.session_bytes, config.limits.session_arenas,
                           config.limits.transfers_in_flight, kMaxBatchTransfers};
  session_options.default_deadline = config.transfer.deadline;
  session_options.failures_kept = config.limits.session_failures;
  session_options.sessions = config.limits.sessions;
  session_options.sessions_per_uid = config.limits.sessions_per_uid;
  sessions = std::make_unique<SessionTable>(
      control, devices, session_options,
      SessionTable::Hooks{
          [this](Door::ConnectionId connection, const AttachReply& reply, const std::vector<int>& fds) {
            return door.Send(connection, EncodeAttach(reply), fds);
          },
          [this](Door::ConnectionId connection) { door.Close(connection); },
          [this](SessionId session) { driver->EndSession(session); },
          [this](ArenaId arena) { peers->OnArenaGone(arena); }});

  PeerTable::Options peer_options;
  peer_options.node = config.node.name;
  peer_options.incarnation = incarnation;
  peer_options.peer_socket = std::filesystem::absolute(Path("peer/peer.sock"));
  peer_options.trusted_uids = config.peer.uids;
  peer_options.ucx_version = ucx_version;
  peer_options.ucx_missing = ucx_missing;
  peer_options.order = config.transfer.order;
  PeerTable::Hooks peer_hooks;
  peer_hooks.send_request = [this](Door::ConnectionId connection, const PeerSocketRequest& request) {
    return door.Send(connection, EncodePeerSocket(request));
  };
  peer_hooks.send_response = [this](Door::ConnectionId connection, const PeerSocketResponse& response,
                                    const std::vector<int>& fds) {
    return door.Send(connection, EncodePeerSocket(response), fds);
  };
  peer_hooks.close = [this](Door::ConnectionId connection) { door.Close(connection); };
  peer_hooks.connect = [this](PeerId peer, const std::string& path) -> absl::StatusOr<Door::ConnectionId> {
    ASSIGN_OR_RETURN(UniqueFd socket, ConnectUnix(path));
    return door.AddPackets(
        std::move(socket), UniqueFd(),
        [this, peer](Door::ConnectionId connection, Door::Packet packet) {
          absl::StatusOr<PeerSocketResponse> response = ParsePeerSocketResponse(packet.bytes);
          if (!response.ok() || packet.truncated) {
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
        });
  };
  const PeerId self = map.self;
  peers = std::make_unique<PeerTable>(control, devices, *sessions, self, std::move(nodes), peer_options,
                                      std::move(peer_hooks));

  TransferEngine::Options engine_options;
  engine_options.order = config.transfer.order;
  engine_options.offers_per_peer = config.limits.offers_per_peer;
  driver = std::make_unique<TransferDriver>(
      control, devices, *sessions, std::move(map), engine_options,
      TransferDriver::Hooks{
          [this](PeerId peer, std::vector<PeerMessage> messages) { peers->Send(peer, std::move(messages)); },
          [this](PeerId peer) { peers->Want(peer); },
          [this](PeerId peer, ArenaId arena) { peers->FetchArena(peer, arena); },
          [this](PeerId peer) { return peers->StillValid(peer); }});
  dialer = MakePeerDialer(control);
  peers->Connect(driver.get(), dialer.get());
}

absl::Status Daemon::Impl::MakeServers() {
  rpc = std::make_unique<RpcCore>(RpcCore{control, *sessions, *driver, connections,
                                          [this](Task task) { later.push_back(std::move(task)); }});
  admin = std::make_unique<AdminCore>(AdminCore{
      *rpc, config, devices, *peers, incarnation, started, ucx_version.empty() ? ucx_missing : ucx_version,
      [this] {
        return DumpState(config.node.name, incarnation, control.Now(), devices, *peers, *sessions,
                         driver->engine());
      },
      [this](absl::Duration timeout, std::function<void(uint64_t)> done) {
        StartDrain(timeout, std::move(done));
      },
      [this] {
        draining = false;
        driver->SetDraining(false);
        sessions->SetDraining(false);
        health.SetServing("", true);
        health.SetServing("readiness", true);
        FERRY_LOG(info, "daemon.undrain", "node {} serves again", config.node.name);
      }});
  services.push_back(MakeSessionService(*rpc));
  services.push_back(MakeTransferService(*rpc));
  services.push_back(MakeAdminService(*admin));
  services.push_back(MakePeerService(control, *peers));
  services.push_back(MakeReflectionService(
      {"ferry.v1.SessionService", "ferry.v1.TransferService", "grpc.health.v1.Health"}));
  services.push_back(MakeReflectionService({"ferry.admin.v1.AdminService", "grpc.health.v1.Health"}));
  GrpcServerOptions client_options;
  client_options.max_receive_bytes = 1 << 20;
  ASSIGN_OR_RETURN(client_server,
                   GrpcServer::Create({services[0].get(), services[1].get(), services[4].get(), &health}, client_options));
  ASSIGN_OR_RETURN(admin_server, GrpcServer::Create({services[2].get(), services[5].get(), &health}, {}));
  if (!config.peer.listen.empty()) {
    GrpcServerOptions peer_options;
    peer_options.max_receive_bytes = kPeerMessageBytes;
    peer_options.keepalive = true;
    ASSIGN_OR_RETURN(peer_server, GrpcServer::Create({services[3].get()}, peer_options));
  }
  return absl::OkStatus();
}

absl::Status Daemon::Impl::OpenDoor() {
  const std::string attach_path = Path("client/attach.sock");
  const std::string peer_path = Path("peer/peer.sock");
  ASSIGN_OR_RETURN(UniqueFd attach, ListenUnix(attach_path, SOCK_SEQPACKET, 0666));
  ASSIGN_OR_RETURN(UniqueFd client, ListenUnix(Path("client/client.sock"), SOCK_STREAM, 0666));
  ASSIGN_OR_RETURN(UniqueFd admin_socket, ListenUnix(Path("admin/admin.sock"), SOCK_STREAM, 0660));
  ASSIGN_OR_RETURN(UniqueFd metrics, ListenUnix(Path("admin/metrics.sock"), SOCK_STREAM, 0660));
  ASSIGN_OR_RETURN(UniqueFd peer_socket,
                   ListenUnix(peer_path, SOCK_SEQPACKET, config.peer.uids.empty() ? 0600 : 0666));
  UniqueFd peer_tcp, metrics_tcp;
  if (peer_server != nullptr) {
    ASSIGN_OR_RETURN(peer_tcp, ListenTcp(config.peer.listen));
    peer_port = BoundPort(peer_tcp.get());
  }
  if (!config.metrics.listen.empty()) {
    ASSIGN_OR_RETURN(metrics_tcp, ListenTcp(config.metrics.listen));
  }

  // Connections to gRPC: credentials are read here, the rest is gRPC's.
  const auto to_grpc = [this](GrpcServer* server) {
    return [this, server](UniqueFd socket) {
      absl::StatusOr<Credentials> credentials = PeerCredentials(socket.get());
      if (!credentials.ok()) return;
      absl::StatusOr<int> fd = connections.Admit(std::move(socket), *credentials);
      if (!fd.ok()) {
        FERRY_LOG(warn, "connection.refused", "{}", std::string(fd.status().message()));
        return;
      }
      server->Serve(*fd);
    };
  };
  door.Listen("client.sock", std::move(client), to_grpc(client_server.get()));
  door.Listen("admin.sock", std::move(admin_socket), to_grpc(admin_server.get()));
  if (peer_tcp.valid()) {
    door.Listen("peer port", std::move(peer_tcp), [this](UniqueFd socket) {
      const int one = 1;
      setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
      peer_server->Serve(socket.Release());
    });
  }
  const auto metrics_text = [this] { return MetricsPage(); };
  door.Listen("metrics.sock", std::move(metrics), ServeMetrics(door, control, metrics_text));
  if (metrics_tcp.valid()) {
    door.Listen("metrics port", std::move(metrics_tcp), ServeMetrics(door, control, metrics_text));
  }
  door.Listen("peer.sock", std::move(peer_socket), [this](UniqueFd socket) {
    absl::StatusOr<Credentials> credentials = PeerCredentials(socket.get());
    if (!credentials.ok()) return;
    door.AddPackets(
        std::move(socket), UniqueFd(),
        [this, who = *credentials](Door::ConnectionId connection, Door::Packet packet) {
          absl::StatusOr<PeerSocketRequest> request = ParsePeerSocketRequest(packet.bytes);
          if (!request.ok() || packet.truncated) {
            FERRY_LOG(warn, "peer_socket.garbage", "pid {} uid {} sent no request; closed", who.pid, who.uid);
            PeerSocketResponse response;
            response.error = request.ok() ? Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError,
                                                  "peer.sock: the packet is too long")
                                          : request.status();
            door.Send(connection, EncodePeerSocket(response));
            door.Close(connection);
            control.Post([this, connection] { peers->OnSocketClosed(connection); });
            return;
          }
          control.Post([this, connection, who, request = *std::move(request)]() mutable {
            peers->OnSocketRequest(connection, who, std::move(request));
          });
        },
        [this](Door::ConnectionId connection) {
          control.Post([this, connection] { peers->OnSocketClosed(connection); });
        });
  });
  door.Listen("attach.sock", std::move(attach), [this](UniqueFd socket) {
    absl::StatusOr<Credentials> credentials = PeerCredentials(socket.get());
    if (!credentials.ok()) return;
    UniqueFd process = PeerPidFd(socket.get(), credentials->pid);
    const Door::ConnectionId connection = door.AddPackets(
        std::move(socket), std::move(process),
        [this, who = *credentials](Door::ConnectionId connection, Door::Packet packet) {
          absl::StatusOr<AttachCommand> command = ParseAttach(packet.bytes);
          if (packet.truncated) {
            command = Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError,
                            absl::StrCat("attach.sock: a packet has at most ", Door::kMaxPacket, " bytes and ",
                                         Door::kMaxFds, " descriptors"));
          }
          control.Post([this, connection, who, command = std::move(command),
                        fds = std::move(packet.fds)]() mutable {
            if (command.ok()) {
              sessions->OnCommand(connection, who, *std::move(command), std::move(fds));
            } else {
              sessions->OnGarbage(connection, command.status());
            }
          });
        },
        [this](Door::ConnectionId connection) {
          control.Post([this, connection] { sessions->OnClosed(connection); });
        });
    control.Post([this, connection] { sessions->OnConnected(connection); });
  });
  return absl::OkStatus();
}

absl::Time Daemon::Impl::AfterBatch() {
  const absl::Time now = control.Now();
  sessions->OnTime(now);
  absl::Time next = peers->OnTime(now);
  next = std::min(next, driver->AfterBatch());
  for (Task& task : std::exchange(later, {})) task();
  next = std::min(next, sessions->NextTimer());
  if (!drain_waiters.empty()) {
    const bool idle = driver->engine().in_flight() == 0;
    if (!idle && now >= drain_deadline && !drain_expired) {
      drain_expired = true;
      drain_cancelled = driver->CancelAll(
          Error(absl::StatusCode::kUnavailable, Reason::kDraining, "the daemon drained and its deadline came"));
      // What is launched gets a moment to end; it is not waited for beyond that.
      drain_deadline = now + absl::Seconds(2);
      return now;
    }
    if (idle || (drain_expired && now >= drain_deadline)) {
      for (auto& waiter : std::exchange(drain_waiters, {})) waiter(drain_cancelled);
    } else {
      next = std::min(next, drain_deadline);
    }
  }
  return next;
}

void Daemon::Impl::StartDrain(absl::Duration timeout, std::function<void(uint64_t)> done) {
  if (!std::exchange(draining, true)) {
    FERRY_LOG(info, "daemon.drain", "node {} drains, {} transfers in flight, at most {}", config.node.name,
              driver->engine().in_flight(), absl::FormatDuration(timeout));
    FlightRecorder::Get().Record("daemon.drain", driver->engine().in_flight());
    health.SetServing("", false);
    health.SetServing("readiness", false);
    driver->SetDraining(true);
    sessions->SetDraining(true);
  }
  drain_expired = false;
  drain_cancelled = 0;
  drain_deadline = control.Now() + timeout;
  drain_waiters.push_back(std::move(done));
}

uint64_t Daemon::Drain(absl::Duration timeout, const std::function<bool()>& interrupted) {
  Mutex mutex;
  std::condition_variable_any changed;
  std::optional<uint64_t> cancelled;
  auto done = [&](uint64_t count) {
    MutexLock lock(mutex);
    cancelled = count;
    changed.notify_all();
  };
  impl_->control.Post([&] { impl_->StartDrain(timeout, done); });
  bool cut_short = false;
  MutexLock lock(mutex);
  while (!cancelled.has_value()) {
    changed.wait_for(mutex, std::chrono::milliseconds(50));
    if (!cut_short && !cancelled.has_value() && interrupted()) {
      cut_short = true;
      impl_->control.Post([this] { impl_->drain_deadline = impl_->control.Now(); });
    }
  }
  return *cancelled;
}

std::string Daemon::Impl::MetricsPage() {
  std::vector<prometheus::MetricFamily> families;
  ExportProcess(families);
  families.push_back(GaugeFamily("ferry_ready", "1 if new transfers are taken", draining ? 0 : 1));
  families.push_back(GaugeFamily("ferry_draining", "1 while draining", draining ? 1 : 0));
  families.push_back(GaugeFamily("ferry_sessions", "Open sessions", static_cast<double>(sessions->open())));
  prometheus::MetricFamily total = CounterFamily("ferry_sessions_total", "Sessions by what became of them", 0);
  total.metric.clear();
  const SessionTable::Counts& counts = sessions->counts();
  AddSample(total, {{"result", "opened"}}, static_cast<double>(counts.opened));
  AddSample(total, {{"result", "refused"}}, static_cast<double>(counts.refused));
  AddSample(total, {{"result", "lost"}}, static_cast<double>(counts.lost));
  AddSample(total, {{"result", "closed"}}, static_cast<double>(counts.closed));
  families.push_back(std::move(total));
  families.push_back(CounterFamily("ferry_connections_rejected_total", "Connections closed for want of descriptors",
                                   static_cast<double>(door.refused_for_fds())));
  driver->metrics().Export(families);

  prometheus::MetricFamily inflight = GaugeFamily("ferry_transfers_inflight", "Transfers posted and not over", 0);
  inflight.metric.clear();
  std::map<std::string, uint64_t> by_state = {{"waiting", 0}, {"offered", 0}, {"matched", 0}, {"launched", 0}};
  absl::Time oldest = control.Now();
  for (const TransferEngine::Row& row : driver->engine().List(driver->engine().in_flight())) {
    ++by_state[row.state];
    oldest = std::min(oldest, row.posted);
  }
  for (const auto& [state, count] : by_state) AddSample(inflight, {{"state", state}}, static_cast<double>(count));
  families.push_back(std::move(inflight));
  families.push_back(GaugeFamily("ferry_transfer_oldest_age_seconds", "Age of the oldest transfer in flight",
                                 absl::ToDoubleSeconds(control.Now() - oldest)));

  prometheus::MetricFamily arenas = GaugeFamily("ferry_buffers", "Arenas", 0);
  prometheus::MetricFamily bytes = GaugeFamily("ferry_buffer_bytes", "Bytes of arenas", 0);
  arenas.metric.clear();
  bytes.metric.clear();
  for (const auto& device : devices.list) {
    AddSample(arenas, {{"kind", "host"}, {"device", absl::StrCat(device->id.value())}},
              static_cast<double>(device->arenas));
    AddSample(bytes, {{"kind", "host"}, {"device", absl::StrCat(device->id.value())}},
              static_cast<double>(device->arena_bytes));
  }
  families.push_back(std::move(arenas));
  families.push_back(std::move(bytes));

  prometheus::MetricFamily links = GaugeFamily("ferry_peer_connections", "Peer links by state", 0);
  links.metric.clear();
  std::map<std::string, int> states = {{"idle", 0}, {"connecting", 0}, {"up", 0}, {"lost", 0}};
  for (const PeerTable::Row& row : peers->List()) ++states[row.state];
  for (const auto& [state, count] : states) AddSample(links, {{"state", state}}, count);
  families.push_back(std::move(links));
  return MetricsText(families);
}

void Daemon::Impl::Stop() {
  // In reverse: nobody new, no calls, no links, no decisions, no copies; then the tables go.
  door.Stop();
  health.Shutdown();
  for (auto* server : {&client_server, &admin_server, &peer_server}) {
    if (*server != nullptr) (*server)->Shutdown();
  }
  control.Stop();
  devices.list.clear();
  for (const char* socket : {"client/attach.sock", "client/client.sock", "admin/admin.sock",
                             "admin/metrics.sock", "peer/peer.sock"}) {
    unlink(Path(socket).c_str());
  }
}

}  // namespace ferry
