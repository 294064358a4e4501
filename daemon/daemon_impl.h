// SPDX-License-Identifier: Apache-2.0
// The parts of a Daemon and how they hang together; private to daemon*.cc. Members are in the order
// in which they are built. Home: as each part says; what is marked control's is control's.
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
#include "daemon/daemon.h"
#include "daemon/door.h"
#include "daemon/doors.h"
#include "daemon/drain.h"
#include "daemon/job_runner.h"
#include "daemon/job_table.h"
#include "daemon/local_devices.h"
#include "daemon/peer_table.h"
#include "daemon/process_limits.h"
#include "daemon/pulse.h"
#include "daemon/reload_queue.h"
#include "daemon/rpc/admin_service.h"
#include "daemon/rpc/connection_table.h"
#include "daemon/rpc/core.h"
#include "daemon/rpc/grpc_server.h"
#include "daemon/rpc/health_service.h"
#include "daemon/session_table.h"
#include "daemon/supervisor.h"
#include "daemon/transfer_driver.h"
#include "device/cuda/nvml.h"
#include "device/host/copy.h"
#include "device/lane.h"

namespace ferry {

Incarnation NewIncarnation();

struct Daemon::Impl {
  Impl(Config c, GivenSockets g, std::function<void()> ask_reload)
      : config(std::move(c)),
        given(std::move(g)),
        incarnation(NewIncarnation()),
        control("control"),
        compiler("compiler"),
        runner(
            JobThreads(config),
            JobRunner::MostKept{config.limits.job_bytes, config.limits.job_memory},
            [this](const Doorbell& bell, bool hear) {
              hear ? compute.Hear(bell) : compute.Unhear(bell);
            },
            [this](TransferId job, absl::Status why) {
              control.PostOrRun(
                  [this, job, why = std::move(why)] { jobs->OnFiringFailed(job, why); });
            }),
        compute("compute", Lane::DefaultSpin()),
        doors(config, connections, peer_connections),
        drain(config.node.name),
        reloads(std::move(ask_reload)) {}

  absl::Status Start();
  absl::Status MakeGpus();
  // There is no driver: OK if the configuration names no GPU of it.
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
  // Of a lane.
  void OnResults(std::vector<OpResult> results);
  // For a GPU's copiers: tells the engine.
  std::function<void(absl::Time)> SmsBusyHook(GlobalDeviceId device);
  // What a GPU's lane stages with.
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
  absl::Status MakeServers();
  // The listener of this name that was given, or one of our own, at `file` of the runtime
  // directory.
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
  // What a packet asks for.
  void ToControl(const Door::Packet& packet, Task task);
  absl::StatusOr<Door::ConnectionId> ConnectToPeer(PeerId peer, const std::string& path);
  absl::Time AfterBatch();
  std::string MetricsPage();
  // Of a prepared batch of transfers or jobs.
  void EndPrepared(TransferId first, const absl::Status& why) {
    if (!jobs->Cancel(first, why)) driver->EndPrepared(first, why);
  }
  // While it drains: when it wants to be called again. Prepared batches that nobody fires, and
  // transfers whose partner has not come.
  absl::Time EndWhatCannotEnd(absl::Time now);
  absl::Time EndIdlePrepared(absl::Time now);
  absl::Time EndUnmatched(absl::Time now);
  // The same, of its deadline and its end.
  absl::Time LookAtDrain(absl::Time now);
  // Parts of the page.
  void ExportComms(std::vector<prometheus::MetricFamily>& families);
  void ExportDevices(std::vector<prometheus::MetricFamily>& families);
  void ExportJobs(std::vector<prometheus::MetricFamily>& families);
  void ExportLimits(std::vector<prometheus::MetricFamily>& families);
  void ExportPeers(std::vector<prometheus::MetricFamily>& families);
  void ExportSessions(std::vector<prometheus::MetricFamily>& families);
  void ExportTransfers(std::vector<prometheus::MetricFamily>& families);
  size_t in_flight() const { return driver->engine().in_flight() + jobs->in_flight(); }
  // As Drain's Join, Leave and TakeBack.
  ferry::Drain::Caller StartDrain(absl::Duration timeout, bool stops, ferry::Drain::Done done);
  bool LeaveDrain(ferry::Drain::Caller caller);
  absl::Status Undrain();
  // On control. Nothing is taken over unless all is.
  absl::StatusOr<Reloaded> GoOverTo(const Config& loaded);
  void GoOverTo(const MembershipChange& change);
  // Clients, probes and peers are told how it stands.
  void TellOfDrain();
  void SayGoodbye();
  void Stop();

  std::string Path(const char* name) const {
    return absl::StrCat(config.node.runtime_dir, "/", name);
  }
  // Now, or after a reload.
  bool may_have_peers() const {
    return config.membership.nodes.size() > 1 || !config.peer.listen.empty();
  }

  // Written by control when a reload is taken over, while the main thread waits; other threads read
  // only what takes a restart.
  Config config;
  GivenSockets given;                    // that nobody has taken yet
  std::vector<std::string> own_sockets;  // files, which go with the daemon
  UniqueFd lock;                         // of the runtime directory
  const Incarnation incarnation;
  const absl::Time started = MonotonicNow();
  std::string ucx_version;  // "" if there is none
  std::string ucx_missing;
  std::string ucx_of_gpus;  // how their memory gets there; "": there are none
  NcclOptions nccl;
  std::string gpus_missing;    // why there are none, or fewer than the machine has
  std::unique_ptr<Nvml> nvml;  // null if there is none
  CopyHelper copy_helper;
  Pulse pulse;
  std::atomic<size_t> sessions_seen = 0, in_flight_seen = 0;  // by the pulse
  SerialExecutor control;
  SerialExecutor compiler;  // of programs
  JobRunner runner;         // runs them, on
  Lane compute;
  Doors doors;
  ConnectionTable connections{ConnectionTable::Of::kClients};
  ConnectionTable peer_connections{ConnectionTable::Of::kPeers};
  LocalDevices devices;
  std::unique_ptr<SessionTable> sessions;
  std::unique_ptr<PeerTable> peers;
  std::unique_ptr<TransferDriver> driver;
  std::unique_ptr<JobTable> jobs;
  std::unique_ptr<PeerDialer> dialer;
  // Control's.
  std::vector<Task> later;
  ferry::Drain drain;
  bool drain_told = false;       // to clients and probes
  absl::Time drain_look;         // for prepared batches whose firing is over
  absl::Time drain_alone;        // for transfers whose partner has not come
  uint64_t drain_continued = 0;  // batches that were taken meanwhile, of which that may be said
  ReloadQueue reloads;

  std::unique_ptr<RpcCore> rpc;
  std::unique_ptr<AdminCore> admin;
  HealthService health{[this](const std::string& connection) { connections.Called(connection); }};
  std::vector<std::unique_ptr<grpc::Service>> services;
  std::unique_ptr<UserServers> client_servers;
  std::unique_ptr<GrpcServer> admin_server, peer_server;
  std::string peer_secret;  // the cluster's; "": there is none
  int peer_port = 0;
  Door door;  // last: stopped first
};

}  // namespace ferry
