// SPDX-License-Identifier: Apache-2.0
// Builds the daemon's devices, tables and gRPC servers, in this order.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"
#include "compute/host/cpu.h"
#include "daemon/config/values.h"
#include "daemon/configured.h"
#include "daemon/daemon_impl.h"
#include "daemon/domain_tag.h"
#include "daemon/dump.h"
#include "daemon/network_interface.h"
#include "daemon/rpc/attach_codec.h"
#include "daemon/rpc/client_services.h"
#include "daemon/rpc/peer_rpc.h"
#include "daemon/rpc/reflection_service.h"
#include "transfer/local/copy_transport.h"
#include "transfer/local/prepared_runner.h"

namespace ferry {
namespace {

// The interface that has the address at which peers find this daemon; "" if it is not said.
std::string LinksInterface(const Config& config) {
  for (const Config::Node& node : config.membership.nodes) {
    if (node.name != config.node.name) continue;
    const absl::StatusOr<HostPort> address = ParseHostPort(node.address);
    if (address.ok()) return InterfaceOf(address->host);
  }
  return "";
}

// RDMA's devices are not the links' interface; of TCP's only that goes where the links go.
std::string UcxDevicesOf(const Config& config) {
  const std::string& said = config.transfer.ucx.net_devices;
  const bool ours = said.empty() && getenv("UCX_NET_DEVICES") == nullptr && !HasRdmaAdapters();
  return ours ? LinksInterface(config) : said;
}

// Of a UCX that is open, for people.
std::string UcxText(const Config& config, const std::string& version, const std::string& of_gpus) {
  std::string text = absl::StrCat(version, ", by ", UcxDevices(UcxDevicesOf(config)));
  if (!of_gpus.empty()) absl::StrAppend(&text, ", memory of GPUs ", of_gpus);
  const std::vector<std::string> not_taken = UcxNotTaken();
  if (!not_taken.empty()) {
    absl::StrAppend(&text, "; not taken from the environment: ", absl::StrJoin(not_taken, ", "));
  }
  return text;
}

// How many GPUs there are, or why there are none, for people. `nvml` may be null.
std::string GpusText(const LocalDevices& devices, const Nvml* nvml, const std::string& missing) {
  if (devices.gpus.empty()) return absl::StrCat("none: ", missing);
  return absl::StrCat(devices.gpus.size(), ", driver ",
                      nvml != nullptr ? nvml->driver_version()
                                      : absl::StrCat("of ", devices.gpus[0]->info().driver));
}

// Adds to what a server serves that it tells of the services with these names.
void Reflect(std::vector<std::unique_ptr<grpc::Service>>& owned,
             std::vector<grpc::Service*>& served, const std::vector<std::string>& names) {
  for (std::unique_ptr<grpc::Service>& reflection : MakeReflectionServices(names)) {
    served.push_back(reflection.get());
    owned.push_back(std::move(reflection));
  }
}

// Of the devices that there are: without those of GPUs that are missing.
std::vector<GlobalDeviceId> IdsOf(const Config& config, size_t gpus) {
  std::vector<GlobalDeviceId> ids = config.OwnIds(gpus);
  ids.resize(config.devices.host + gpus);
  return ids;
}

// As membership says, but for GPUs of this node that are missing, which nobody has.
DeviceMap MapOf(const std::vector<PeerConfig>& nodes, const std::string& self,
                const LocalDevices& devices) {
  DeviceMap map;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const PeerId id(static_cast<uint32_t>(i));
    const bool own = nodes[i].node == self;
    if (own) map.self = id;
    map.node_names.push_back(nodes[i].node);
    for (const GlobalDeviceId device : nodes[i].devices) {
      if (!own || devices.Find(device) != nullptr) map.owner[device] = id;
    }
  }
  for (const auto& device : devices.list) {
    if (device->gpu != nullptr) map.gpus.insert(device->id);
  }
  return map;
}

}  // namespace

void Daemon::Impl::OpenNccl() {
  const auto& order = config.transfer.order;
  nccl.bytes_per_gpu = config.limits.comm_bytes_per_gpu;
  nccl.idle = config.transfer.nccl.idle;
  if (!may_have_peers()) {
    nccl.missing = "not opened: this node is alone";
  } else if (std::find(order.begin(), order.end(), Route::kNccl) == order.end()) {
    nccl.missing = "not opened: transfer.order does not name nccl";
  } else if (devices.gpus.empty()) {
    nccl.missing = "not opened: this node has no GPU";
  } else if (absl::StatusOr<const NcclApi*> api =
                 LoadNccl(config.transfer.nccl.library, config.transfer.nccl.environment,
                          LinksInterface(config));
             api.ok()) {
    nccl.api = *api;
  } else {
    nccl.missing = std::string(api.status().message());
  }
}

const UcxApi* Daemon::Impl::OpenUcx() {
  const auto& order = config.transfer.order;
  if (!may_have_peers()) {
    ucx_missing = "not opened: this node is alone";
  } else if (std::find(order.begin(), order.end(), Route::kUcx) == order.end()) {
    ucx_missing = "not opened: transfer.order does not name ucx";
  } else if (config.transfer.ucx.shm_tls.empty() && !NamesTcp(config.transfer.ucx.net_tls) &&
             !HasRdmaAdapters()) {
    ucx_missing =
        "not opened: this host has no RDMA adapter, and transfer.ucx names neither tcp nor shared "
        "memory";
  } else if (absl::StatusOr<const UcxApi*> api = LoadUcx(config.transfer.ucx.library); api.ok()) {
    ucx_version = UcxVersion(**api);
    const std::string why = config.transfer.ucx.library.empty() ? WhyHostsUcx() : "";
    if (!why.empty() && HasRdmaAdapters()) {  // as it should be
      FERRY_LOG(info, "ucx.other", "{} of the host is taken: {}", ucx_version, why);
    } else if (!why.empty()) {
      FERRY_LOG(warn, "ucx.other", "{} of the host is taken, not Ferry's own: {}", ucx_version,
                why);
    }
    return *api;
  } else {
    ucx_missing = std::string(api.status().message());
  }
  return nullptr;
}

absl::Status Daemon::Impl::MakeDevices() {
  OpenNccl();
  const UcxApi* const ucx = OpenUcx();
  const std::vector<GlobalDeviceId> ids = IdsOf(config, devices.gpus.size());
  if (ids.empty()) {
    return Error(
        absl::StatusCode::kInvalidArgument, Reason::kConfigInvalid,
        absl::StrCat("make devices: devices.host is 0, and there are no GPUs: ", gpus_missing));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<LocalDevice> device, MakeDevice(i, ids[i], ucx));
    devices.list.push_back(std::move(device));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LocalDevice>> Daemon::Impl::MakeDevice(size_t index,
                                                                      GlobalDeviceId id,
                                                                      const UcxApi* ucx) {
  auto device = std::make_unique<LocalDevice>();
  device->id = id;
  const bool host = index < config.devices.host;
  if (!host) device->gpu = devices.gpus[index - config.devices.host].get();
  device->name =
      host ? absl::StrCat("host", index) : absl::StrCat("gpu", device->gpu->info().ordinal);
  device->memory = std::make_unique<SerialExecutor>(absl::StrCat("memory ", id.value()));
  device->lane = std::make_unique<Lane>(absl::StrCat("lane ", id.value()), Lane::DefaultSpin());
  const OpSink sink = [this](std::vector<OpResult> results) { OnResults(std::move(results)); };
  const auto copier = [&](CopyUse use) -> std::unique_ptr<Copier> {
    if (!host) return device->gpu->MakeCopier(use, SmsBusyHook(device->id));
    return std::make_unique<HostCopier>(copy_helper);
  };
  device->Add(
      {Route::kLocal, Route::kMapped}, LocalDevice::Serves::kPosted,
      std::make_unique<CopyTransport>(*device->lane, copier(CopyUse::kTransfers), sink,
                                      [this](PeerId peer) { return peers->StillValid(peer); }));
  device->Add({Route::kLocal, Route::kMapped}, LocalDevice::Serves::kArmed,
              std::make_unique<PreparedRunner>(*device->lane, copier(CopyUse::kPrepared), sink));
  if (nccl.api != nullptr && !host) MakeNccl(*device, sink);
  RETURN_IF_ERROR(MakeNetworkRoutes(*device, ucx, sink));
  return device;
}

absl::Status Daemon::Impl::MakeNetworkRoutes(LocalDevice& device, const UcxApi* ucx,
                                             const OpSink& sink) {
  const auto& order = config.transfer.order;
  const bool host = device.gpu == nullptr;
  const bool tcp =
      may_have_peers() && std::find(order.begin(), order.end(), Route::kTcp) != order.end();
  if (!host && (tcp || ucx != nullptr)) RETURN_IF_ERROR(MakeStaging(device));
  if (tcp) MakeTcp(device, sink);
  if (ucx == nullptr) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<UcxTransport>> transport = MakeUcx(*ucx, device, sink);
  if (transport.ok()) {
    ucx_transports[device.id] =
        device.Add({Route::kUcx}, LocalDevice::Serves::kPosted, *std::move(transport));
    if (!host) ucx_of_gpus = ucx_transports[device.id]->way();
  } else {
    FERRY_LOG(warn, "ucx.unavailable", LogFields("device", device.id), "{}",
              std::string(transport.status().message()));
    ucx_version.clear();
    ucx_missing = std::string(transport.status().message());
  }
  return absl::OkStatus();
}

// A lane's answer of many operations is several tasks of control.
void Daemon::Impl::OnResults(std::vector<OpResult> results) {
  constexpr size_t kAtOnce = 4 * TransferDriver::kPostsAtOnce;
  const bool many = results.size() > TransferDriver::kPostsAtOnce;
  const auto post = [&](std::vector<OpResult> part) {
    Task task = [this, part = std::move(part)]() mutable { driver->OnResults(std::move(part)); };
    many ? control.PostLong(std::move(task)) : control.PostOrRun(std::move(task));
  };
  size_t begin = 0;
  for (; results.size() - begin > kAtOnce; begin += kAtOnce) {
    const auto from = std::make_move_iterator(results.begin() + static_cast<ptrdiff_t>(begin));
    post({from, from + static_cast<ptrdiff_t>(kAtOnce)});
  }
  results.erase(results.begin(), results.begin() + static_cast<ptrdiff_t>(begin));
  post(std::move(results));
}

void Daemon::Impl::MakeTcp(LocalDevice& device, OpSink sink) {
  TcpTransport::Options options;
  options.bulk_connections = config.transfer.tcp.connections;
  auto transport = TcpTransport::Create(
      *device.lane, device.id, options,
      {.sink = std::move(sink),
       .opened =
           [this](PeerId peer, uint64_t link, const absl::Status& status) {
             control.Post([this, peer, link, status] { peers->OnTcpOpened(peer, link, status); });
           }},
      device.staging.get());
  tcp_transports[device.id] =
      device.Add({Route::kTcp}, LocalDevice::Serves::kBoth, std::move(transport));
}

absl::StatusOr<std::unique_ptr<UcxTransport>> Daemon::Impl::MakeUcx(const UcxApi& api,
                                                                    LocalDevice& device,
                                                                    OpSink sink) {
  const auto& settings = config.transfer.ucx;
  UcxOptions options;
  options.shm_tls = settings.shm_tls;
  options.net_tls = settings.net_tls;
  options.net_devices = UcxDevicesOf(config);
  options.net_direct = settings.direct == UcxDirect::kOn ||
                       (settings.direct == UcxDirect::kAuto && HasRdmaAdapters());
  options.shm_direct = settings.direct == UcxDirect::kOn;
  options.why_staged = settings.direct == UcxDirect::kOff ? "transfer.ucx.direct is off"
                                                          : "this host has no RDMA adapter";
  options.moved = [this, id = device.id](std::optional<PeerId> to) {
    control.Post([this, id, to] { peers->OnUcxMoved(id, to); });
  };
  return UcxTransport::Create(api, options, *device.lane, std::move(sink), device.staging.get());
}

void Daemon::Impl::MakeTables() {
  // PeerIds are positions in membership's list as it is now, to begin with.
  std::vector<PeerConfig> nodes;
  for (const Config::Node& node : config.membership.nodes)
    nodes.push_back({node.name, node.address, node.ids});
  if (nodes.empty()) nodes.push_back({config.node.name, "", config.OwnIds(devices.gpus.size())});
  DeviceMap map = MapOf(nodes, config.node.name, devices);
  MakeSessions();
  MakePeers(map.self, std::move(nodes));
  MakeDriver(std::move(map));
  MakeJobs();
  dialer = MakePeerDialer(control);
  peers->Connect(driver.get(), dialer.get());
}

// What sessions need, from the parts that are built after them.
class Daemon::Impl::Sink : public SessionSink {
 public:
  explicit Sink(Impl& daemon) : daemon_(daemon) {}

  bool Send(Door::ConnectionId connection, const AttachReply& reply,
            const std::vector<int>& fds) override {
    return daemon_.door.Send(connection, EncodeAttach(reply), fds);
  }
  void Close(Door::ConnectionId connection) override { daemon_.door.Close(connection); }
  PostReply Post(Session& session, PostBatch batch) override {
    PostReply reply = batch.runs_programs ? daemon_.jobs->Post(session, std::move(batch))
                                          : daemon_.driver->Post(session, std::move(batch));
    if (!reply.status.ok()) daemon_.driver->OnRejected(reply.status);
    return reply;
  }
  void Later(Task task) override { daemon_.later.push_back(std::move(task)); }
  void OnEnded(SessionId session) override {
    daemon_.driver->EndSession(session);
    daemon_.jobs->EndSession(session);
  }
  void OnArenaGone(ArenaId arena) override { daemon_.peers->OnArenaGone(arena); }
  void EndPrepared(TransferId member, const absl::Status& why) override {
    daemon_.EndPrepared(member, why);
  }
  void OnSessions(const Credentials& process, int by) override {
    daemon_.connections.OnSessions(process, by);
  }

 private:
  Impl& daemon_;
};

void Daemon::Impl::MakeSessions() {
  SessionTable::Options options = SessionLimitsOf(config);
  options.node = config.node.name;
  options.incarnation = incarnation;
  options.domain_key = DomainKey(peer_secret, ReadBootId());
  sink = std::make_unique<Sink>(*this);
  sessions = std::make_unique<SessionTable>(control, devices, options, *sink);
}

void Daemon::Impl::MakePeers(PeerId self, std::vector<PeerConfig> nodes) {
  PeerTable::Options options;
  options.node = config.node.name;
  options.incarnation = incarnation;
  options.peer_socket = std::filesystem::absolute(Path("peer/peer.sock"));
  options.trusted_uids = config.peer.uids;
  options.secret = peer_secret;
  options.ucx_version = ucx_version;
  options.ucx_missing = ucx_missing;
  options.nccl_version = nccl.api == nullptr ? "" : nccl.api->version_text();
  options.nccl_missing = nccl.missing;
  options.tcp = tcp_transports;
  options.ucx = ucx_transports;
  PeerTable::Hooks hooks;
  hooks.send_request = [this](Door::ConnectionId connection, const PeerSocketRequest& request) {
    const std::string packet = EncodePeerSocket(request);
    return packet.size() <= Door::kMaxPacket && door.Send(connection, packet);
  };
  hooks.send_response = [this](Door::ConnectionId connection, const PeerSocketResponse& response,
                               const std::vector<int>& fds) {
    return door.Send(connection, EncodePeerSocket(response), fds);
  };
  hooks.close = [this](Door::ConnectionId connection) { door.Close(connection); };
  hooks.finish = [this](Door::ConnectionId connection) { door.Finish(connection); };
  hooks.connect = [this](PeerId peer, const std::string& path) {
    return ConnectToPeer(peer, path);
  };
  peers = std::make_unique<PeerTable>(control, devices, *sessions, self, std::move(nodes), options,
                                      std::move(hooks));
}

void Daemon::Impl::MakeDriver(DeviceMap map) {
  TransferEngine::Options options;
  options.order = config.transfer.order;
  options.bounds = EngineBoundsOf(config);
  driver = std::make_unique<TransferDriver>(
      control, devices, *sessions, std::move(map), options,
      TransferDriver::Hooks{
          .send = [this](PeerId peer, std::vector<PeerMessage> messages,
                         bool more) { peers->Send(peer, std::move(messages), more); },
          .want_peer = [this](PeerId peer) { peers->Want(peer); },
          .fetch_arena = [this](PeerId peer, ArenaId arena,
                                GlobalDeviceId device) { peers->FetchArena(peer, arena, device); },
          .still_valid = [this](PeerId peer) { return peers->StillValid(peer); },
          .page_with_slots = [this](PeerId peer,
                                    bool ours) { return peers->PageWithSlots(peer, ours); },
          .incarnation = [this](PeerId peer) { return peers->IncarnationOf(peer); },
          .max_ctas =
              [this](GlobalDeviceId device) {
                const PeerDeviceInfo* const told = peers->ToldOf(device);
                return told == nullptr ? 0 : told->max_ctas;
              },
          .over = [this](const Ended& ended) { jobs->OnOver(ended); }},
      nccl);
}

void Daemon::Impl::MakeJobs() {
  MakeGpuCompute();
  JobTable::Homes homes{.control = control,
                        .compiler = compiler,
                        .host = {host_compute.lane, host_compute.runner},
                        .gpus = {},
                        .kernels = kernels.get(),
                        .barred = barred.get()};
  for (const auto& [id, thread] : gpu_compute) {
    homes.gpus.emplace(id,
                       JobTable::Computing{thread->lane, thread->runner, multipliers.at(id).get()});
  }
  jobs = std::make_unique<JobTable>(
      std::move(homes), devices, *sessions, JobLimitsOf(config),
      JobTable::Hooks{
          .over = [this](const Ended& ended) { driver->Over(ended); },
          .in_flight =
              [this](TransferId id) { return driver->engine().view().Find(id).has_value(); },
          .poison = [this](TransferId id,
                           const absl::Status& why) { driver->EndPrepared(id, why); },
          .check =
              [this](absl::Span<const TransferSpec> specs) { return driver->CheckOfJobs(specs); },
          .post =
              [this](absl::Time posted, TransferId first, std::vector<TransferSpec> specs) {
                driver->PostOfJobs(posted, first, std::move(specs));
              },
          .define = [this](TransferId id) { driver->Define(id); }});
}

absl::Status Daemon::Impl::MakeServers() {
  rpc = std::make_unique<RpcCore>(
      RpcCore{.control = control,
              .sessions = *sessions,
              .driver = *driver,
              .jobs = *jobs,
              .connections = connections,
              .later = [this](Task task) { later.push_back(std::move(task)); }});
  admin = std::make_unique<AdminCore>(AdminCore{
      .rpc = *rpc,
      .config = config,
      .devices = devices,
      .peers = *peers,
      .incarnation = incarnation,
      .started = started,
      .ucx = ucx_version.empty() ? ucx_missing : UcxText(config, ucx_version, ucx_of_gpus),
      .gpus = GpusText(devices, nvml.get(), gpus_missing),
      .nccl = nccl.api == nullptr ? nccl.missing : nccl.api->version_text(),
      .programs = compute::DescribeCpu(JobThreads(config)),
      .barred = *barred,
      .nvml = nvml.get(),
      .dump =
          [this] {
            return DumpState(config.node.name, incarnation, control.Now(), devices, *peers,
                             *sessions, driver->engine().view(), *jobs);
          },
      .drain =
          [this](absl::Duration timeout, ferry::Drain::Done done) {
            return drainer->Start(timeout, false, std::move(done));
          },
      .leave_drain = [this](ferry::Drain::Caller caller) { return drainer->Leave(caller); },
      .undrain = [this] { return drainer->TakeBack(); },
      .reload = [this](const ReloadQueue::Done& done) { reloads.Ask(done); },
      .config_generation = [this] { return reloads.generation(); }});
  const auto add = [this](std::unique_ptr<grpc::Service> service) {
    return services.emplace_back(std::move(service)).get();
  };
  std::vector<grpc::Service*> for_clients = {
      add(MakeSessionService(*rpc, devices, *peers, config.node.name)),
      add(MakeTransferService(*rpc)), add(MakeProgramService(*rpc)), &health};
  std::vector<grpc::Service*> for_operators = {add(MakeAdminService(*admin)), &health};
  grpc::Service* const for_peers =
      add(MakePeerService(control, *peers, [this](const std::string& connection) {
        peer_connections.Greeted(connection);
      }));
  Reflect(services, for_clients,
          {"ferry.v1.SessionService", "ferry.v1.TransferService", "ferry.v1.ProgramService",
           "grpc.health.v1.Health"});
  Reflect(services, for_operators, {"ferry.admin.v1.AdminService", "grpc.health.v1.Health"});
  GrpcServerOptions client_options;
  // More than a batch may have (convert refuses it), so that the refusal can say which and why.
  client_options.max_receive_bytes = 4 << 20;
  client_options.bytes = config.limits.rpc_bytes_per_uid;
  ASSIGN_OR_RETURN(client_servers, UserServers::Create(std::move(for_clients), client_options));
  ASSIGN_OR_RETURN(admin_server, GrpcServer::Create(for_operators, {}));
  if (!config.peer.listen.empty()) {
    GrpcServerOptions peer_options;
    peer_options.max_receive_bytes = kPeerMessageBytes;
    peer_options.keepalive = true;
    peer_options.streams_per_connection = 2;  // a link, and a knock
    peer_options.bytes = uint64_t{1} << 30;
    ASSIGN_OR_RETURN(peer_server, GrpcServer::Create({for_peers}, peer_options));
  }
  return absl::OkStatus();
}

}  // namespace ferry
