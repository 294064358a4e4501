// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/schema.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "daemon/config/fields.h"
#include "daemon/config/special_fields.h"

namespace ferry {
namespace {

using Fields = std::vector<ConfigField>;

#define MEMBER(name) \
  [](Config & c) -> auto& { return c.name; }

void AddNode(Fields& fields) {
  fields.push_back(
      TextField("node.name",
                "This node in `membership.nodes`, in logs and for its peers. By default the "
                "host's name",
                MEMBER(node.name), NameProblem));
  fields.back().default_words = "the host's name";
  fields.push_back(TextField(
      "node.runtime_dir",
      "Directory of the sockets; the daemon makes it and holds a lock on it. In those above it "
      "nobody but its user and root may write, as in `/run`, or each only what is its "
      "own, as in `/tmp`. "
      "`ferryctl` and `libferry` look where `FERRY_RUNTIME_DIR` says, too",
      MEMBER(node.runtime_dir), PathProblem));
}

void AddSockets(Fields& fields) {
  fields.push_back(TextField(
      "sockets.client.owner",
      "User, by name or number, of `client/attach.sock` and `client/client.sock`. Empty: the "
      "daemon's; another needs a daemon of root's",
      MEMBER(sockets.client.owner), UserProblem));
  fields.push_back(
      TextField("sockets.client.group",
                "Group of the same, by name or number. Empty: the daemon's; another needs a daemon "
                "that is in it, or of root's",
                MEMBER(sockets.client.group), GroupProblem));
  fields.push_back(
      TextField("sockets.client.mode",
                "Mode of the same, octal: who may connect, and so attach, needs to write",
                MEMBER(sockets.client.mode), ModeProblem));
  fields.push_back(
      TextField("sockets.admin.owner",
                "As `sockets.client.owner`, of `admin/admin.sock` and `admin/metrics.sock`",
                MEMBER(sockets.admin.owner), UserProblem));
  fields.push_back(TextField("sockets.admin.group",
                             "As `sockets.client.group`, of the same: these users are operators",
                             MEMBER(sockets.admin.group), GroupProblem));
  fields.push_back(TextField("sockets.admin.mode", "As `sockets.client.mode`, of the same",
                             MEMBER(sockets.admin.mode), ModeProblem));
}

void AddDevices(Fields& fields) {
  fields.push_back(
      NumberField("devices.host",
                  "How many host devices (CPU memory) this node has. Without it, as many as "
                  "`membership.nodes` gives ids for that are not GPUs'",
                  0, 256, MEMBER(devices.host)));
  fields.push_back(GpusField(
      "devices.gpus",
      "Its GPUs: all that are found and no other daemon has, or those named by UUID as "
      "`nvidia-smi -L` says it or by the driver's index. Their ids follow the host devices', in "
      "this order"));
  fields.push_back(TextField("devices.cuda_library", "CUDA's driver library, a name or a path",
                             MEMBER(devices.cuda_library), LibraryProblem));
  fields.push_back(TextField("devices.nvml_library", "NVML, a name or a path",
                             MEMBER(devices.nvml_library), LibraryProblem));
  fields.push_back(TextField("devices.nvrtc_library",
                             "NVRTC, which compiles the kernels of programs on GPUs, a name or a "
                             "path; empty: the newest that CUDA has installed",
                             MEMBER(devices.nvrtc_library)));
  fields.push_back(TextField("devices.cublaslt_library",
                             "cuBLASLt, which multiplies matrices for programs on GPUs, a name or "
                             "a path; empty: the newest that CUDA has installed; `none`: slow "
                             "kernels of Ferry's own do",
                             MEMBER(devices.cublaslt_library)));
  fields.push_back(TextField("devices.kernel_cache",
                             "A directory that keeps compiled kernels from one life of the daemon "
                             "to the next, at most 1 GiB; daemons may share it. Only its owner may "
                             "write there. Empty: kernels are compiled anew in each life",
                             MEMBER(devices.kernel_cache)));
  fields.push_back(TextField("devices.packaged_kernels",
                             "A directory of compiled kernels that is only read; `none`: there is "
                             "none. Empty: what the package has installed",
                             MEMBER(devices.packaged_kernels)));
  fields.push_back(
      NumberField("devices.ids.base",
                  "Global device ids are this plus the index, unless `membership.nodes` lists them",
                  0, uint64_t{1} << 62, MEMBER(devices.base_id)));
}

void AddMembership(Fields& fields) {
  fields.push_back(
      TextField("membership.provider", "Where the nodes come from: `static`, from this file",
                MEMBER(membership.provider), [](const std::string& text) {
                  if (text == "static") return std::string();
                  if (text == "etcd" || text == "seeds") {
                    return absl::StrCat("'", text, "' is not supported in this version");
                  }
                  return absl::StrCat("'", text, "' is not one of static");
                }));
  fields.push_back(NodesField(
      "membership.nodes",
      "All nodes, this one among them, alike on each: its name, where its peers dial it "
      "(`host:port`, may be left out if it is alone), the global ids of its devices. Empty: "
      "this node is alone. A reload takes other nodes that come, leave or have another address, "
      "and not this node's own entry"));
}

void AddPeer(Fields& fields) {
  fields.push_back(TextField(
      "peer.listen",
      "`address:port` where peers may dial this daemon. Empty: none may; needed if there are "
      "several nodes",
      MEMBER(peer.listen), ListenProblem));
  for (const char* key : {"cert", "key", "ca"}) {
    fields.push_back(UnsupportedField(absl::StrCat("peer.tls.", key)));
  }
  fields.push_back(BoolField("peer.insecure",
                             "Links beyond loopback are wanted, although they are plaintext",
                             MEMBER(peer.insecure)));
  fields.push_back(BoolField("peer.forwarded",
                             "Something forwards this node's address in `membership.nodes` to "
                             "`peer.listen`, so that their ports may differ",
                             MEMBER(peer.forwarded)));
  fields.push_back(TextField(
      "peer.secret_file",
      "File of the secret by which daemons know each other, 16 to 4,096 bytes, alike on all "
      "nodes; needed beyond loopback. Empty: they know each other by uid, on one host",
      MEMBER(peer.secret_file),
      [](const std::string& text) { return text.empty() ? "" : PathProblem(text); }));
  fields.push_back(UidsField(
      "peer.uids", "Users besides the daemon's own whose daemons may connect to `peer/peer.sock`"));
}

void AddSessionLimits(Fields& fields) {
  fields.push_back(SizeField("limits.session_bytes", "Of all arenas of a session",
                             MEMBER(limits.session_bytes)));
  fields.push_back(NumberField("limits.session_arenas", "Arenas of a session", 1, 1'000'000,
                               MEMBER(limits.session_arenas)));
  fields.push_back(NumberField("limits.transfers_in_flight",
                               "Transfers and jobs of a session that are not over", 1, 10'000'000,
                               MEMBER(limits.transfers_in_flight)));
  fields.push_back(NumberField("limits.session_failures",
                               "Statuses of failed transfers that are kept for a session", 1,
                               10'000'000, MEMBER(limits.session_failures)));
  fields.push_back(
      NumberField("limits.sessions", "Sessions at once", 1, 1'000'000, MEMBER(limits.sessions)));
  fields.push_back(NumberField("limits.sessions_per_uid", "Of them, of one user", 1, 1'000'000,
                               MEMBER(limits.sessions_per_uid)));
  fields.push_back(NumberField("limits.connections_per_uid",
                               "Connections of a user to `client.sock` at once", 1, 1'000'000,
                               MEMBER(limits.connections_per_uid)));
  fields.push_back(NumberField(
      "limits.connects_per_second",
      "How often a user may connect to a Unix socket, or an address to a port, in the long "
      "run; twice as often at once",
      1, 1'000'000, MEMBER(limits.connects_per_second)));
  fields.push_back(SizeField(
      "limits.rpc_bytes_per_uid",
      "Of a user's calls that have arrived and are not done with, unfinished messages among "
      "them",
      MEMBER(limits.rpc_bytes_per_uid)));
  fields.push_back(NumberField("limits.offers_per_peer",
                               "Offers of a peer that wait here unmatched; of one user at most "
                               "half, of one session a quarter",
                               1, 10'000'000, MEMBER(limits.offers_per_peer)));
  fields.push_back(
      SizeField("limits.session_kept_bytes",
                "What is kept of a session's transfers that are not over: records, keys, layouts",
                MEMBER(limits.session_kept_bytes)));
  fields.push_back(SizeField("limits.uid_kept_bytes", "The same, of all sessions of a user",
                             MEMBER(limits.uid_kept_bytes)));
  fields.push_back(SizeField("limits.peer_kept_bytes", "The same, of what a peer has offered",
                             MEMBER(limits.peer_kept_bytes)));
}

void AddDeviceLimits(Fields& fields) {
  fields.push_back(
      SizeField("limits.gpu_bytes", "Of all arenas on one GPU", MEMBER(limits.gpu_bytes)));
  fields.push_back(SizeField("limits.job_bytes", "Of memory that a job takes beside its buffers",
                             MEMBER(limits.job_bytes)));
  fields.push_back(SizeField(
      "limits.job_memory",
      "The same, of all jobs that send or receive by themselves, and of all runs that are put "
      "aside",
      MEMBER(limits.job_memory)));
  fields.push_back(NumberField("limits.job_flops",
                               "What a job may cost, in floating-point operations and bytes moved",
                               1, uint64_t{1} << 60, MEMBER(limits.job_flops)));
  fields.push_back(NumberField("limits.launch_flops",
                               "The same between two looks whether the job is to end", 1 << 20,
                               uint64_t{1} << 60, MEMBER(limits.launch_flops)));
  fields.push_back(NumberField("limits.gpu_launch_flops",
                               "The same of a launch of a GPU, which nothing divides: a program "
                               "with a larger step is refused",
                               1 << 20, uint64_t{1} << 60, MEMBER(limits.gpu_launch_flops)));
  fields.push_back(NumberField("limits.gpu_ms_per_second",
                               "Of each GPU's time, what the jobs of a user may take, in "
                               "milliseconds a second; beyond that they wait. 1000: all of it",
                               1, 1000, MEMBER(limits.gpu_ms_per_second)));
  fields.push_back(NumberField(
      "limits.job_threads",
      "Threads that run jobs, all together. 0: one less than the machine's cores, 1 to 16", 0, 1024,
      MEMBER(limits.job_threads)));
  fields.push_back(
      SizeField("limits.comm_bytes_per_gpu",
                "Of all communicators of NCCL on one GPU; idle ones beyond that are closed",
                MEMBER(limits.comm_bytes_per_gpu)));
}

void AddTransfer(Fields& fields) {
  fields.push_back(RoutesField(
      "transfer.order",
      "The routes that may be taken, the first choice first. `ucx` is there only where there "
      "is RDMA, or by name (`transfer.ucx`)"));
  fields.push_back(
      ChoiceField("transfer.choose",
                  "The first route of the order, or one that was measured to be clearly faster",
                  Choices<RouteChoosing>{{"order", RouteChoosing::kOrder},
                                         {"estimate", RouteChoosing::kEstimate}},
                  MEMBER(transfer.choose)));
  fields.push_back(DurationField("transfer.deadline", "Of a transfer that names none",
                                 MEMBER(transfer.deadline)));
  fields.push_back(SizeField(
      "transfer.staging",
      "Host memory for each GPU and direction, by way of which its bytes go where `tcp` and "
      "`ucx` cannot take them as they are; at least 8 MiB",
      MEMBER(transfer.staging)));
  fields.push_back(NumberField("transfer.tcp.connections",
                               "Of a pair of devices, for what is large", 1, 15,
                               MEMBER(transfer.tcp.connections)));
}

void AddLibraries(Fields& fields) {
  fields.push_back(TextField("transfer.ucx.library",
                             "`libucp`, a name or a path. Empty: Ferry's own, else the host's",
                             MEMBER(transfer.ucx.library)));
  fields.push_back(TextField("transfer.ucx.shm_tls",
                             "`UCX_TLS` between daemons of one user on one host. Empty: none",
                             MEMBER(transfer.ucx.shm_tls)));
  fields.push_back(TextField(
      "transfer.ucx.net_tls",
      "`UCX_TLS` between all others. Empty: none. Without an RDMA adapter UCX is opened only if "
      "this or the one above names something else than RDMA",
      MEMBER(transfer.ucx.net_tls)));
  fields.push_back(TextField(
      "transfer.ucx.open_to",
      "Who reaches UCX's own TCP port, which obeys whoever does; in words, for people. Needed if "
      "`net_tls` or `shm_tls` names tcp, or all",
      MEMBER(transfer.ucx.open_to)));
  fields.push_back(TextField(
      "transfer.ucx.net_devices",
      "`UCX_NET_DEVICES`. Empty: as the environment says; else, without an RDMA adapter, the "
      "interface that has this node's address, and with one all",
      MEMBER(transfer.ucx.net_devices)));
  fields.push_back(ChoiceField(
      "transfer.ucx.direct",
      "Memory of GPUs is given to UCX as it is, if it can take it; `auto`: between hosts, where "
      "there are RDMA "
      "adapters",
      Choices<UcxDirect>{
          {"auto", UcxDirect::kAuto}, {"true", UcxDirect::kOn}, {"false", UcxDirect::kOff}},
      MEMBER(transfer.ucx.direct)));
  fields.push_back(TextField("transfer.nccl.library", "NCCL, a name or a path",
                             MEMBER(transfer.nccl.library), LibraryProblem));
  fields.push_back(NumberField("transfer.nccl.max_ctas", "Of a communicator. 0: NCCL's own choice",
                               0, 64, MEMBER(transfer.nccl.max_ctas)));
  fields.push_back(DurationField("transfer.nccl.idle",
                                 "A communicator that was not used for so long is closed",
                                 MEMBER(transfer.nccl.idle)));
  fields.push_back(
      DurationField("transfer.nccl.group_time",
                    "How long a group of large transfers may take; small ones wait behind two",
                    MEMBER(transfer.nccl.group_time)));
  fields.push_back(NcclEnvironmentField(
      "transfer.nccl.environment", "NCCL's variables, over those of the daemon's environment"));
}

void AddOperation(Fields& fields) {
  fields.push_back(TextField(
      "metrics.listen", "`address:port` of `/metrics`, besides `admin/metrics.sock`. Empty: none",
      MEMBER(metrics.listen), ListenProblem));
  fields.push_back(
      BoolField("metrics.insecure",
                "A port beyond loopback is wanted, where whoever reaches it may read all metrics",
                MEMBER(metrics.insecure)));
  Choices<std::string> levels;
  for (const char* level : {"trace", "debug", "info", "warn", "error", "off"}) {
    levels.emplace_back(level, level);
  }
  fields.push_back(ChoiceField(
      "log.level",
      "The least that is logged; `ferryctl loglevel` sets it until the next reload or start",
      levels, MEMBER(log.level)));
  fields.push_back(
      ChoiceField("log.format", "One event a line, for people or for programs",
                  Choices<LogFormat>{{"text", LogFormat::kText}, {"json", LogFormat::kJson}},
                  MEMBER(log.format)));
  fields.push_back(DurationField("drain.timeout",
                                 "How long a drain waits for what is in flight; then that is ended",
                                 MEMBER(drain.timeout)));
  fields.push_back(DurationField(
      "start.lock_wait",
      "How long a start waits for a daemon that still holds the lock on `node.runtime_dir`: one "
      "that was killed does until its memory is taken apart, with GPUs for seconds",
      MEMBER(start.lock_wait)));
}

#undef MEMBER

// Settings that are not listed here take a restart.
constexpr std::pair<absl::string_view, Taken> kTaken[] = {
    {"membership.nodes", Taken::kAtReload},
    {"limits.session_bytes", Taken::kByNewSessions},
    {"limits.session_arenas", Taken::kByNewSessions},
    {"limits.transfers_in_flight", Taken::kByNewSessions},
    {"limits.session_failures", Taken::kByNewSessions},
    {"limits.sessions", Taken::kAtReload},
    {"limits.sessions_per_uid", Taken::kAtReload},
    {"limits.connections_per_uid", Taken::kAtReload},
    {"limits.connects_per_second", Taken::kAtReload},
    {"limits.offers_per_peer", Taken::kAtReload},
    {"limits.session_kept_bytes", Taken::kByNewSessions},
    {"limits.uid_kept_bytes", Taken::kAtReload},
    {"limits.peer_kept_bytes", Taken::kAtReload},
    {"limits.gpu_bytes", Taken::kAtReload},
    {"limits.job_bytes", Taken::kAtReload},
    {"limits.job_flops", Taken::kAtReload},
    {"limits.launch_flops", Taken::kAtReload},
    {"limits.gpu_launch_flops", Taken::kAtReload},
    {"limits.gpu_ms_per_second", Taken::kAtReload},
    {"limits.comm_bytes_per_gpu", Taken::kAtReload},
    {"transfer.choose", Taken::kAtReload},
    {"transfer.deadline", Taken::kByNewSessions},
    {"transfer.nccl.idle", Taken::kAtReload},
    {"transfer.nccl.group_time", Taken::kAtReload},
    {"log.level", Taken::kAtReload},
    {"drain.timeout", Taken::kAtReload},
};

Fields MakeFields() {
  Fields fields;
  for (const auto add : {AddNode, AddSockets, AddDevices, AddMembership, AddPeer, AddSessionLimits,
                         AddDeviceLimits, AddTransfer, AddLibraries, AddOperation}) {
    add(fields);
  }
  for (ConfigField& field : fields) {
    const auto* const row = std::find_if(std::begin(kTaken), std::end(kTaken),
                                         [&](const auto& row) { return row.first == field.path; });
    if (row != std::end(kTaken)) field.taken = row->second;
  }
  return fields;
}

}  // namespace

void ConfigDraft::Problem(const std::string& path, absl::string_view what) {
  const auto origin = origins.find(path);
  problems.push_back(
      absl::StrCat(origin == origins.end() ? "default" : origin->second, ": ", path, ": ", what));
  // A wrong part makes the setting that it belongs to broken.
  broken.insert(path.substr(0, path.find('[')));
}

const std::vector<ConfigField>& ConfigFields() {
  static const std::vector<ConfigField>* const fields = new std::vector<ConfigField>(MakeFields());
  return *fields;
}

const ConfigField* FindConfigField(absl::string_view path) {
  for (const ConfigField& field : ConfigFields()) {
    if (field.path == path) return &field;
  }
  return nullptr;
}

bool IsConfigSection(absl::string_view path) {
  const std::string prefix = absl::StrCat(path, ".");
  return std::any_of(ConfigFields().begin(), ConfigFields().end(), [&](const ConfigField& field) {
    return absl::StartsWith(field.path, prefix);
  });
}

std::string EnvironmentName(const ConfigField& field) {
  return absl::StrCat("FERRY_",
                      absl::AsciiStrToUpper(absl::StrReplaceAll(field.path, {{".", "__"}})));
}

const std::map<std::string, std::string>& ShortEnvironmentNames() {
  static const auto* const names =
      new std::map<std::string, std::string>{{"FERRY_CUBLASLT_LIBRARY", "devices.cublaslt_library"},
                                             {"FERRY_CUDA_LIBRARY", "devices.cuda_library"},
                                             {"FERRY_LOG_LEVEL", "log.level"},
                                             {"FERRY_NCCL_LIBRARY", "transfer.nccl.library"},
                                             {"FERRY_NVML_LIBRARY", "devices.nvml_library"},
                                             {"FERRY_NVRTC_LIBRARY", "devices.nvrtc_library"},
                                             {"FERRY_RUNTIME_DIR", "node.runtime_dir"}};
  return *names;
}

}  // namespace ferry
