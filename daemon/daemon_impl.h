// SPDX-License-Identifier: Apache-2.0
// The parts of a Daemon and how they are wired together; private to daemon*.cc. Members stand in
// the order in which they are built. Home: each part's own; `later` is control's.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/fd.h"
#include "compute/cuda/cublaslt_library.h"
#include "compute/cuda/run/gpu_multiplier.h"
#include "daemon/daemon.h"
#include "daemon/door.h"
#include "daemon/drainer.h"
#include "daemon/job/bar_at_loss.h"
#include "daemon/job/barred_programs.h"
#include "daemon/job/job_runner.h"
#include "daemon/job/job_table.h"
#include "daemon/local_devices.h"
#include "daemon/peer/peer_table.h"
#include "daemon/process_limits.h"
#include "daemon/pulse.h"
#include "daemon/reload_queue.h"
#include "daemon/rpc/admin_service.h"
#include "daemon/rpc/connection_table.h"
#include "daemon/rpc/core.h"
#include "daemon/rpc/grpc_server.h"
#include "daemon/rpc/health_service.h"
#include "daemon/session/session_table.h"
#include "daemon/socket_bounds.h"
#include "daemon/supervisor.h"
#include "daemon/transfer_driver.h"
#include "device/cuda/nvml.h"
#include "device/host/copy.h"
#include "device/lane.h"

namespace ferry {

Incarnation NewIncarnation();

struct Daemon::Impl {
  class Sink;

  Impl(Config c, GivenSockets g, std::function<void()> ask_reload)
      : config(std::move(c)),
        given(std::move(g)),
        incarnation(NewIncarnation()),
        control("control"),
        compiler("compiler"),
        host_compute(*this, "compute", std::make_unique<HostComputer>(JobThreads(config))),
        socket_bounds(config, connections, peer_connections),
        reloads(std::move(ask_reload)) {}

  // Computes programs: a thread, and who runs jobs there.
  struct ComputeThread {
    ComputeThread(Impl& daemon, const std::string& name, std::unique_ptr<Computer> computer);

    JobRunner runner;  // a poller of `lane`
    Lane lane;
  };

  absl::Status Start();
  absl::Status MakeGpus();
  // Called when there is no CUDA driver. OK if the configuration names no GPU, else `why`.
  absl::Status GoWithoutGpus(const absl::Status& why);
  void OpenNccl();
  // Null, and why in ucx_missing, if there is none.
  const UcxApi* OpenUcx();
  absl::Status MakeDevices();
  // `index`: among all devices, host devices first.
  absl::StatusOr<std::unique_ptr<LocalDevice>> MakeDevice(size_t index, GlobalDeviceId id,
                                                          const UcxApi* ucx);
  void MakeNccl(LocalDevice& device, OpSink sink);
  // Routes tcp and ucx, with what a GPU's lane stages for them. A UCX (null: none) that does not
  // take the device counts as missing.
  absl::Status MakeNetworkRoutes(LocalDevice& device, const UcxApi* ucx, const OpSink& sink);
  // Takes the answers of a lane, on the lane's thread, to control.
  void OnResults(std::vector<OpResult> results);
  // Made for a GPU's copiers: tells the engine until when the GPU's SMs are busy.
  std::function<void(absl::Time)> SmsBusyHook(GlobalDeviceId device);
  // Makes the staging memory of a GPU's lane, for `tcp` and `ucx`.
  absl::Status MakeStaging(LocalDevice& device);
  void MakeTcp(LocalDevice& device, OpSink sink);
  absl::StatusOr<std::unique_ptr<UcxTransport>> MakeUcx(const UcxApi& api, LocalDevice& device,
                                                        OpSink sink);
  // What control keeps. Each table calls the others by hooks, once all of them are there.
  void MakeTables();
  void MakeSessions();
  void MakePeers(PeerId self, std::vector<PeerConfig> nodes);
  void MakeDriver(DeviceMap map);
  void MakeJobs();
  // The threads that compute programs on GPUs, the kernels, and the programs that are barred.
  void MakeGpuCompute();
  void MakeDrainer();
  absl::Status MakeServers();
  // The listening socket of this name that the supervisor has given, or a new one at `file` of the
  // runtime directory.
  absl::StatusOr<UniqueFd> Listener(const char* name, const char* file, int type,
                                    SocketAccess access, Descriptors descriptors);
  struct Listeners {
    UniqueFd attach, client, admin, metrics, peer_socket;
    UniqueFd peer_tcp, metrics_tcp;  // invalid: not listened on
  };
  // All that the daemon listens on, before any of it is served.
  absl::StatusOr<Listeners> OpenListeners();
  absl::Status OpenDoor();
  // What arrives at client.sock and admin.sock: credentials are read by the door, the rest is
  // gRPC's.
  void ServeGrpc(UniqueFd client, UniqueFd admin_socket);
  // The peer port: links, and data connections of route tcp.
  void ServePeers(UniqueFd peer_tcp);
  void ServeMetricsPage(UniqueFd metrics, UniqueFd metrics_tcp);
  void ServePeerSocket(UniqueFd listener);
  void ServeSessions(UniqueFd attach);
  // On the door's thread, as the two above hand them over.
  void OnPeerSocketPacket(Door::ConnectionId connection, const Credentials& who,
                          const Door::Packet& packet);
  void OnAttachPacket(Door::ConnectionId connection, const Credentials& who, Door::Packet packet);
  void StartPulse();
  // Posts to control what a packet asks for.
  void ToControl(const Door::Packet& packet, Task task);
  absl::StatusOr<Door::ConnectionId> ConnectToPeer(PeerId peer, const std::string& path);
  absl::Time AfterTasks();
  std::string MetricsPage();
  // Ends a prepared batch of transfers or of jobs, named by the first of them.
  void EndPrepared(TransferId first, const absl::Status& why) {
    if (!jobs->Cancel(first, why)) driver->EndPrepared(first, why);
  }
  // Each adds the families of one topic to the metrics page.
  void ExportComms(std::vector<prometheus::MetricFamily>& families);
  void ExportDevices(std::vector<prometheus::MetricFamily>& families);
  void ExportJobs(std::vector<prometheus::MetricFamily>& families);
  void ExportLimits(std::vector<prometheus::MetricFamily>& families);
  void ExportPeers(std::vector<prometheus::MetricFamily>& families);
  void ExportSessions(std::vector<prometheus::MetricFamily>& families);
  void ExportTransfers(std::vector<prometheus::MetricFamily>& families);
  size_t in_flight() const { return driver->engine().view().in_flight() + jobs->in_flight(); }
  // On control. Takes over all of `loaded`, or, if something in it needs a restart, nothing.
  absl::StatusOr<Reloaded> GoOverTo(const Config& loaded);
  void GoOverTo(const MembershipChange& change);
  void SayGoodbye();
  void Stop();

  std::string Path(const char* name) const {
    return absl::StrCat(config.node.runtime_dir, "/", name);
  }
  // True if there are peers, or a reload may bring some.
  bool may_have_peers() const {
    return config.membership.nodes.size() > 1 || !config.peer.listen.empty();
  }

  // Control writes it when a reload is taken over, while the main thread waits. Other threads read
  // only settings that a restart alone changes.
  Config config;
  GivenSockets given;  // sockets from the supervisor that nobody has taken yet
  // Paths of socket files that the daemon made, and removes at its end
  std::vector<std::string> own_sockets;
  UniqueFd lock;  // the lock on the runtime directory
  const Incarnation incarnation;
  const absl::Time started = MonotonicNow();
  std::string ucx_version;  // "" if there is no UCX
  std::string ucx_missing;
  std::string ucx_of_gpus;  // how the memory of GPUs gets to UCX; "" if there are no GPUs
  NcclOptions nccl;
  // Of `devices`, which owns them.
  TcpLinks::Transports tcp_transports;
  UcxLinks::Transports ucx_transports;
  std::string gpus_missing;    // why there are no GPUs, or fewer than the machine has
  std::unique_ptr<Nvml> nvml;  // null if there is no NVML
  CopyHelper copy_helper;
  Pulse pulse;
  std::atomic<size_t> sessions_seen = 0, in_flight_seen = 0;  // counts that the pulse reads
  SerialExecutor control;
  SerialExecutor compiler;  // compiles programs
  ComputeThread host_compute;
  ConnectionTable connections{ConnectionTable::Of::kClients};
  ConnectionTable peer_connections{ConnectionTable::Of::kPeers};
  SocketBounds socket_bounds;
  LocalDevices devices;
  // Machine code of kernels; null without GPUs. Used on `compiler`.
  std::unique_ptr<compute::KernelStore> kernels;
  // cuBLASLt, opened at its first need; null without GPUs.
  std::unique_ptr<const compute::CublasLtLibrary> cublaslt;
  // What it multiplies on each GPU. Used on `compiler`.
  std::map<GlobalDeviceId, std::unique_ptr<compute::GpuMultiplier>> multipliers;
  // Made once the runtime directory is this daemon's.
  std::unique_ptr<BarredPrograms> barred;
  std::map<GlobalDeviceId, std::unique_ptr<ComputeThread>> gpu_compute;
  std::unique_ptr<BarAtLoss> bar_at_loss;  // of what `gpu_compute` computes
  std::unique_ptr<SessionSink> sink;       // what `sessions` needs of the other parts
  std::unique_ptr<SessionTable> sessions;
  std::unique_ptr<PeerTable> peers;
  std::unique_ptr<TransferDriver> driver;
  std::unique_ptr<JobTable> jobs;
  std::unique_ptr<PeerDialer> dialer;
  // Control's.
  std::vector<Task> later;
  std::unique_ptr<Drainer> drainer;
  ReloadQueue reloads;

  std::unique_ptr<RpcCore> rpc;
  std::unique_ptr<AdminCore> admin;
  HealthService health{[this](const std::string& connection) { connections.Called(connection); }};
  std::vector<std::unique_ptr<grpc::Service>> services;
  std::unique_ptr<UserServers> client_servers;
  std::unique_ptr<GrpcServer> admin_server, peer_server;
  std::string peer_secret;  // the cluster's secret; "" if there is none
  int peer_port = 0;
  Door door;  // last member: stopped first
};

}  // namespace ferry
