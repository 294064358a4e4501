// SPDX-License-Identifier: Apache-2.0
// Everything that can be set about ferryd, every bound among it: one value, which LoadConfig makes
// at start-up and again at each reload. Refuses a configuration with any unknown or wrong setting,
// and names all problems at once. Pure but for reading the files named; any thread.
//
// A setting that is given several times is taken from the first of: flag, variable
// FERRY_SECTION__KEY, drop-ins, the file, the default written here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/log.h"
#include "transfer/engine_options.h"
#include "transfer/types.h"

namespace ferry {

enum class RouteChoosing { kOrder, kEstimate };
// kAuto: on for links between hosts, where there are RDMA adapters.
enum class UcxDirect { kAuto, kOn, kOff };

struct Config {
  struct {
    // By default the host's name; the node's entry in membership.nodes has the same name.
    std::string name;
    std::string runtime_dir = "/run/ferry";
  } node;

  // Who may connect to the sockets of one directory. Owner and group by name or number; empty: the
  // daemon's own.
  struct SocketAccess {
    std::string owner;
    std::string group;
    std::string mode;  // octal
  };
  struct {
    SocketAccess client{"", "", "0666"};
    SocketAccess admin{"", "", "0660"};
  } sockets;

  struct {
    // Host devices. If the setting is not given: as many as membership has ids for, else 2.
    uint32_t host = 2;
    // The setting ids.base: a device's id is base + its index, unless membership lists ids.
    uint64_t base_id = 0;
    // `all_gpus`: all GPUs that are found and that no other daemon has. Else the GPUs in `gpus`,
    // each by its UUID as nvidia-smi prints it, or by the driver's index. Their ids follow those of
    // the host devices, in this order.
    bool all_gpus = true;
    std::vector<std::string> gpus;
    std::string cuda_library = "libcuda.so.1";  // a name or a path; nvml_library too
    std::string nvml_library = "libnvidia-ml.so.1";
    std::string nvrtc_library;  // "": where CUDA installs it
    // cuBLASLt, as nvrtc_library; "none": our own kernels multiply
    std::string cublaslt_library;
    std::string kernel_cache;  // a directory of compiled kernels; "": there is none
    // One that a package brings; "": where that is installed; "none": there is none.
    std::string packaged_kernels;
  } devices;

  struct Node {
    std::string name;
    std::string address;  // host:port where its peers dial it; "" only in a cluster of one node
    std::vector<GlobalDeviceId> ids;
    bool operator==(const Node&) const = default;
  };
  struct {
    std::string provider = "static";
    std::vector<Node> nodes;  // empty: this node is alone
  } membership;

  struct {
    std::string listen;     // host:port; "": nobody may dial this daemon
    bool insecure = false;  // plaintext beyond loopback, which must be asked for
    // Peers reach us by another port than that of `listen`, which must be said
    bool forwarded = false;
    std::string secret_file;  // the cluster's secret; "": peers are told apart by uid, on one host
    // Uids, besides the daemon's own, whose daemons may connect to peer.sock
    std::vector<uint32_t> uids;
  } peer;

  struct {
    // docs/configuration.md explains the limits.
    uint64_t session_bytes = uint64_t{64} << 30;  // bytes of all arenas of one session
    uint32_t session_arenas = 4096;               // arenas of one session
    uint32_t transfers_in_flight = 100'000;       // most transfers of one session
    // Statuses of failed transfers that are kept for one session.
    uint32_t session_failures = 16'384;
    uint32_t sessions = 1024;             // sessions of all clients
    uint32_t sessions_per_uid = 256;      // sessions of one uid
    uint32_t connections_per_uid = 1024;  // connections of one uid to client.sock at once
    // Connects a second, in the long run, of one uid to a Unix socket or of one address to a port.
    // Twice as many may come at once.
    uint32_t connects_per_second = 500;
    // Bytes of calls of one uid that have arrived and are not handled yet, incomplete messages too.
    uint64_t rpc_bytes_per_uid = uint64_t{256} << 20;
    // Unmatched offers of one peer that wait here.
    uint32_t offers_per_peer = EngineOptions::Bounds().offers_per_peer;
    // Bytes of what the daemon remembers of the transfers of one session that are not over:
    // records, keys, layouts.
    uint64_t session_kept_bytes = uint64_t{256} << 20;
    uint64_t uid_kept_bytes = uint64_t{1} << 30;  // the same, of all sessions of one uid
    // The same, of the offers of one peer.
    uint64_t peer_kept_bytes = EngineOptions::Bounds().peer_kept_bytes;
    uint64_t gpu_bytes = uint64_t{1} << 50;  // bytes of all arenas on one GPU
    // Bytes of memory that one job takes beside its buffers
    uint64_t job_bytes = uint64_t{4} << 30;
    // Bytes of memory of all jobs that send or receive by themselves.
    uint64_t job_memory = uint64_t{16} << 30;
    // Operations of one job, bytes moved included: CompiledProgram::work.
    uint64_t job_flops = uint64_t{1} << 42;
    // Operations of one job between two looks at whether it must end.
    uint64_t launch_flops = uint64_t{1} << 34;
    // The same of one launch of a GPU, which cannot be divided.
    uint64_t gpu_launch_flops = uint64_t{1} << 41;
    // Milliseconds of each second of each GPU that the jobs of one user may take. 1,000: all.
    uint32_t gpu_ms_per_second = 1000;
    // Threads that compute jobs, all together. 0: one less than the machine's cores, so that
    // transfers have one; at least 1, at most 16.
    uint32_t job_threads = 0;
    // Bytes of all communicators on one GPU. Beyond that, idle ones are closed.
    uint64_t comm_bytes_per_gpu = uint64_t{2} << 30;
  } limits;

  struct {
    // `ucx` is used only where there is RDMA, or where UCX's settings below name other transports.
    std::vector<Route> order = {Route::kLocal, Route::kMapped, Route::kUcx, Route::kTcp,
                                Route::kNccl};
    // kOrder: the first route of `order` that can be had is taken. kEstimate: the same, unless
    // another one was measured to be clearly faster.
    RouteChoosing choose = RouteChoosing::kEstimate;
    absl::Duration deadline = absl::Seconds(60);  // for transfers that name no deadline
    // Bytes of host memory, for each GPU and direction, through which `tcp` and `ucx` move GPU
    // memory that they cannot take as it is; at least 8 MiB.
    uint64_t staging = uint64_t{32} << 20;
    struct {
      uint32_t connections = 2;  // for large transfers of one pair of devices; 1 to 15
    } tcp;
    struct {
      std::string library;  // libucp, a name or a path; "": the one we ship, or the host's
      // Values of UCX_TLS: between daemons of one user on one host, and between all others; "": UCX
      // is not used there. Without an RDMA adapter UCX is opened only if one of them names
      // something else than RDMA.
      std::string shm_tls;
      std::string net_tls = "rc,ud,dc,self";
      // Who, besides the peers, can reach UCX's own TCP port; for people. UCX obeys whoever reaches
      // that port, so this must be set if `net_tls` or `shm_tls` names tcp.
      std::string open_to;
      std::string net_devices;  // "": as the environment says; else see UcxOptions
      // Whether UCX is given GPU memory as it is, if it can take it.
      UcxDirect direct = UcxDirect::kAuto;
    } ucx;
    struct {
      std::string library = "libnccl.so.2";  // a name or a path
      uint32_t max_ctas = 16;  // the most CTAs of a communicator; 0: NCCL's own choice
      // A communicator that is unused for this long is closed
      absl::Duration idle = absl::Minutes(10);
      // How long a group of large transfers may take. Small transfers wait behind two such groups
      // at most.
      absl::Duration group_time = EngineOptions::Bounds().group_time;
      // NCCL's variables and their values; each replaces what the daemon's environment has.
      std::map<std::string, std::string> environment;
    } nccl;
  } transfer;

  struct {
    std::string
        listen;  // host:port of /metrics, besides its socket in the admin directory; "": none
    // Anybody who reaches a port beyond loopback may read it, which must be asked for
    bool insecure = false;
  } metrics;

  struct {
    std::string level = "info";
    LogFormat format = LogFormat::kText;
  } log;

  struct {
    // When it has passed, what is still in flight is ended.
    absl::Duration timeout = absl::Seconds(120);
  } drain;

  struct {
    // How long to wait for the lock on the runtime directory. A daemon that was killed holds the
    // lock until it is gone.
    absl::Duration lock_wait = absl::Seconds(10);
  } start;

  // The global ids of this node's devices, by index, host devices before GPUs: those of membership,
  // or base + index for `gpus` GPUs.
  std::vector<GlobalDeviceId> OwnIds(size_t gpus) const;
  // How many GPUs membership has ids for; nothing if membership lists no ids.
  std::optional<size_t> GpuIds() const;
};

struct ConfigSources {
  struct Override {
    std::string path;    // the setting: "node.runtime_dir"
    std::string value;   // as it would stand in the file; a list also as "a,b"
    std::string origin;  // "--runtime-dir", for messages
  };
  // The file; nothing: there is none. Its drop-ins are laid over it in this order: conf.d/*.yaml
  // beside it, then FILE.d/*.yaml.
  std::optional<std::string> file;
  // The process's whole environment. Settings are only the variables that start with FERRY_ and
  // have a "__", and the short names (ShortEnvironmentNames). libferry reads the short names of
  // CUDA and NVML too.
  std::map<std::string, std::string> environment;
  std::vector<Override> overrides;
  std::string hostname;  // default of node.name; "": the system is asked
};

// Whether UCX with this value of UCX_TLS listens on TCP, or might.
bool NamesTcp(const std::string& tls);

// INVALID_ARGUMENT/CONFIG_INVALID lists all problems of all sources, one a line:
// "/etc/ferry/ferryd.yaml:3:5: limits.session_bites: unknown key; did you mean
// limits.session_bytes?".
absl::StatusOr<Config> LoadConfig(const ConfigSources& sources);

// When a running daemon takes a setting whose value has changed.
enum class Taken {
  kAtRestart,      // at its next start: a reload that changes the setting is refused
  kByNewSessions,  // at the reload, for sessions that attach after it
  kAtReload,
};

// A setting that differs, with both values as PrintConfig writes them.
struct ConfigChange {
  std::string setting;
  std::string before, after;
  Taken taken = Taken::kAtRestart;
  // "limits.sessions: 8, now 16".
  std::string ToString() const;
};
// The settings that differ. `membership.nodes` is one change for each node whose entry differs,
// named as "membership.nodes[node-c]"; a change of this node's own entry takes a restart. `gpus`:
// how many GPUs this node has, for its own entry if the list has no ids.
std::vector<ConfigChange> CompareConfigs(const Config& before, const Config& after,
                                         size_t gpus = 0);

// How the other nodes of two configurations differ.
struct MembershipChange {
  // Names of nodes that are no longer listed. A node whose devices differ is both in `gone` and in
  // `come`.
  std::vector<std::string> gone;
  std::vector<Config::Node> come;
  std::vector<Config::Node> moved;  // nodes with the same devices at another address
};
MembershipChange CompareMembership(const Config& before, const Config& after);

// Whether a running daemon can make these changes. FAILED_PRECONDITION/CONFIG_INVALID lists every
// setting that takes a restart.
absl::Status CheckReload(const std::vector<ConfigChange>& changes);
// Copies the settings that a reload takes from `loaded` to `running`.
void TakeOver(const Config& loaded, Config& running);

// YAML with every setting. LoadConfig reads it back to the same configuration.
std::string PrintConfig(const Config& config);

// The text of docs/configuration.md: what can be set, and how.
std::string ConfigReference();

}  // namespace ferry
