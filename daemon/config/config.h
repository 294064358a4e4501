// SPDX-License-Identifier: Apache-2.0
// Everything that can be set about ferryd, every bound among it. One value, made by LoadConfig at
// start-up and again by each reload. Pure but for reading the files named; any thread.
//
// Precedence: flag over FERRY_SECTION__KEY over drop-ins over the file over the defaults written
// here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/log.h"
#include "transfer/types.h"

namespace ferry {

enum class RouteChoosing { kOrder, kEstimate };
// kAuto: between hosts, where there are RDMA adapters.
enum class UcxDirect { kAuto, kOn, kOff };

struct Config {
  struct {
    std::string name;  // by default the host's; its entry of membership.nodes has the same
    std::string runtime_dir = "/run/ferry";
  } node;

  // Of a directory's sockets. Owner and group by name or number; empty: the daemon's.
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
    uint32_t host = 2;     // how many host devices; by default as many as membership gives ids for
    uint64_t base_id = 0;  // ids.base: global ids are base + index, unless membership lists them
    // All GPUs that are found and no other daemon has; else those of the list, by UUID as
    // nvidia-smi says it or by the driver's index. Their ids follow the host devices', in this
    // order.
    bool all_gpus = true;
    std::vector<std::string> gpus;
    std::string cuda_library = "libcuda.so.1";  // a name or a path
    std::string nvml_library = "libnvidia-ml.so.1";
  } devices;

  struct Node {
    std::string name;
    std::string address;  // host:port where its peers dial it; "" only in a cluster of one
    std::vector<GlobalDeviceId> ids;
    bool operator==(const Node&) const = default;
  };
  struct {
    std::string provider = "static";
    std::vector<Node> nodes;  // empty: this node is alone
  } membership;

  struct {
    std::string listen;          // host:port; "": nobody may dial this daemon
    bool insecure = false;       // plaintext beyond loopback was asked for by name
    bool forwarded = false;      // the port of our address is not that of `listen`, by name
    std::string secret_file;     // by which daemons know each other; "": by uid, on one host
    std::vector<uint32_t> uids;  // besides its own, whose daemons may connect to peer.sock
  } peer;

  struct {
    uint64_t session_bytes = uint64_t{64} << 30;
    uint32_t session_arenas = 4096;
    uint32_t transfers_in_flight = 100'000;  // of a session
    uint32_t session_failures = 16'384;      // statuses of failed transfers kept for a session
    uint32_t sessions = 1024;
    uint32_t sessions_per_uid = 256;
    uint32_t connections_per_uid = 1024;
    // How often a uid may connect to a Unix socket, or an address to a port, in the long run; twice
    // as often at once.
    uint32_t connects_per_second = 500;
    // Of calls of a uid that have arrived and are not done with, unfinished messages among them.
    uint64_t rpc_bytes_per_uid = uint64_t{256} << 20;
    uint32_t offers_per_peer = 400'000;  // of a peer, waiting here unmatched
    // What the daemon keeps of transfers that are not over: records, keys, layouts.
    uint64_t session_kept_bytes = uint64_t{256} << 20;
    uint64_t uid_kept_bytes = uint64_t{1} << 30;     // for all sessions of a uid
    uint64_t peer_kept_bytes = uint64_t{512} << 20;  // of what a peer has offered
    uint64_t gpu_bytes = uint64_t{1} << 50;          // of all arenas on one GPU
    uint64_t job_bytes = uint64_t{4} << 30;    // of memory that a job takes beside its buffers
    uint64_t job_memory = uint64_t{16} << 30;  // of all jobs that send or receive by themselves
    uint64_t job_flops = uint64_t{1} << 42;    // that it may cost, and bytes moved: compute::WorkOf
    // That a job may cost between two looks whether it is to end.
    uint64_t launch_flops = uint64_t{1} << 34;
    // Threads that run jobs, all together; 0: one less than the machine's cores, so that transfers
    // have one, but 1 to 16.
    uint32_t job_threads = 0;
    // Of all communicators on one GPU; idle ones beyond that are closed.
    uint64_t comm_bytes_per_gpu = uint64_t{2} << 30;
  } limits;

  struct {
    // `ucx` is there only where there is RDMA, or by name.
    std::vector<Route> order = {Route::kLocal, Route::kMapped, Route::kUcx, Route::kTcp,
                                Route::kNccl};
    // How a route is chosen: the first of `order`, or one measured to be clearly faster.
    RouteChoosing choose = RouteChoosing::kEstimate;
    absl::Duration deadline = absl::Seconds(60);  // of a transfer that names none
    // Memory of GPUs that `tcp` and `ucx` cannot take as it is goes by way of so many bytes of host
    // memory for each GPU and direction (at least 8 MiB).
    uint64_t staging = uint64_t{32} << 20;
    struct {
      uint32_t connections = 2;  // of a pair of devices, for what is large; 1 to 15
    } tcp;
    struct {
      std::string library;  // libucp, a name or a path; "": ours, or the host's
      // UCX_TLS between daemons of one user on one host, and between all others; "": none. Without
      // an RDMA adapter UCX is opened only if these name something else than RDMA.
      std::string shm_tls;
      std::string net_tls = "rc,ud,dc,self";
      // UCX's own TCP port obeys whoever reaches it: who that is besides the peers, for people.
      // Needed if `net_tls` or `shm_tls` names tcp.
      std::string open_to;
      std::string net_devices;  // "": as the environment says, else see UcxOptions
      // Memory of GPUs is given to UCX as it is, if it can take it.
      UcxDirect direct = UcxDirect::kAuto;
    } ucx;
    struct {
      std::string library = "libnccl.so.2";     // a name or a path
      uint32_t max_ctas = 16;                   // of a communicator; 0: NCCL's own choice
      absl::Duration idle = absl::Minutes(10);  // a communicator that long unused is closed
      // How long a group of large transfers may take; small ones wait behind two.
      absl::Duration group_time = absl::Milliseconds(2);
      // NCCL's, as "NAME=value": over what the daemon was given.
      std::map<std::string, std::string> environment;
    } nccl;
  } transfer;

  struct {
    std::string
        listen;  // host:port of /metrics besides the socket in the admin directory; "": none
    bool insecure = false;  // anybody who reaches a port beyond loopback may read it, by name
  } metrics;

  struct {
    std::string level = "info";
    LogFormat format = LogFormat::kText;
  } log;

  struct {
    absl::Duration timeout = absl::Seconds(120);  // then what is still in flight is ended
  } drain;

  struct {
    // For the lock on the runtime directory, which a daemon that was killed holds until it is gone.
    absl::Duration lock_wait = absl::Seconds(10);
  } start;

  // The global ids of this node's devices, by index, host devices before GPUs: membership's, else
  // base + index for `gpus` GPUs.
  std::vector<GlobalDeviceId> OwnIds(size_t gpus) const;
  // How many GPUs membership has ids for; nothing if it does not list them.
  std::optional<size_t> GpuIds() const;
};

struct ConfigSources {
  struct Override {
    std::string path;    // "node.runtime_dir"
    std::string value;   // as in the file; lists also as "a,b"
    std::string origin;  // "--runtime-dir", for messages
  };
  // Its drop-ins, in the order in which they are laid over it: conf.d/*.yaml beside it,
  // FILE.d/*.yaml.
  std::optional<std::string> file;
  // All of the process's; only names that start with FERRY_ and have a "__" are settings, and
  // the short ones (ShortEnvironmentNames), of which libferry heeds those of CUDA and NVML too.
  std::map<std::string, std::string> environment;
  std::vector<Override> overrides;
  std::string hostname;  // default of node.name; "": ask the system
};

// Whether a UCX_TLS has UCX listen on TCP, or might.
bool NamesTcp(const std::string& tls);

// INVALID_ARGUMENT/CONFIG_INVALID with all problems of all sources, one a line:
// "/etc/ferry/ferryd.yaml:3:5: limits.session_bites: unknown key; did you mean
// limits.session_bytes?".
absl::StatusOr<Config> LoadConfig(const ConfigSources& sources);

// When a running daemon whose configuration is loaded again takes a setting.
enum class Taken {
  kAtRestart,      // only when it is started again: a reload that changes the setting is refused
  kByNewSessions,  // at the reload, for sessions that attach after it
  kAtReload,
};

// A setting whose value differs, both values as PrintConfig has them.
struct ConfigChange {
  std::string setting;
  std::string before, after;
  Taken taken = Taken::kAtRestart;
  // "limits.sessions: 8, now 16".
  std::string ToString() const;
};
// The settings that differ. `membership.nodes` is one change for each node whose entry differs,
// such as "membership.nodes[node-c]"; a change of this node's own entry takes a restart. `gpus`:
// how many GPUs this node has, for its own entry where the list has none.
std::vector<ConfigChange> CompareConfigs(const Config& before, const Config& after,
                                         size_t gpus = 0);

// How the other nodes of two configurations differ.
struct MembershipChange {
  // Names of nodes that are no longer listed. A node whose devices differ is in `gone` and `come`.
  std::vector<std::string> gone;
  std::vector<Config::Node> come;
  std::vector<Config::Node> moved;  // with the same devices, at another address
};
MembershipChange CompareMembership(const Config& before, const Config& after);

// Whether a daemon that runs with the first of the two configurations can go over to the second:
// FAILED_PRECONDITION/CONFIG_INVALID with every setting that only a restart takes.
absl::Status CheckReload(const std::vector<ConfigChange>& changes);
// Of `running` makes the settings that a reload takes those of `loaded`.
void TakeOver(const Config& loaded, Config& running);

// YAML with every setting; LoadConfig reads it back to the same configuration.
std::string PrintConfig(const Config& config);

// docs/configuration.md: what can be set, and how.
std::string ConfigReference();

}  // namespace ferry
