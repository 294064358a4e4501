// SPDX-License-Identifier: Apache-2.0
#include "bench/nodes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/fd.h"
#include "base/status.h"
#include "tools/ferryctl/health_check.h"

namespace ferry::bench {
namespace {

absl::Status ErrnoFailure(absl::string_view doing) {
  return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal, doing, errno);
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string NodeName(int node) {
  return absl::StrCat("node-", std::string(1, static_cast<char>('a' + node)));
}

std::string ConfigOf(int node, const std::string& runtime_dir, const std::vector<int>& ports,
                     UcxOver over, const Nodes::Gpus& gpus, const std::string& limits) {
  std::string text =
      absl::StrCat("node: { name: ", NodeName(node), ", runtime_dir: ", runtime_dir, " }\n",
                   "devices: { host: 2, gpus: [", absl::StrJoin(gpus[node], ", "),
                   "] }\nmembership:\n  provider: static\n  nodes:\n");
  int next = 0;
  for (int i = 0; i < static_cast<int>(gpus.size()); ++i) {
    std::vector<int> ids(2 + gpus[i].size());
    for (int& id : ids) id = next++;
    absl::StrAppend(&text, "    - { name: ", NodeName(i), ", address: \"127.0.0.1:", ports[i],
                    "\", ids: [", absl::StrJoin(ids, ", "), "] }\n");
  }
  absl::StrAppend(&text, "peer: { listen: \"127.0.0.1:", ports[node], "\" }\n");
  absl::StrAppend(&text, "limits: { sessions: 4096, sessions_per_uid: 4096", limits, " }\n");
  absl::StrAppend(&text, "transfer:\n  ucx: { ",
                  over == UcxOver::kTcp ? "open_to: \"this bench\", net_tls: \"" : "shm_tls: \"",
                  UcxTransports(over), "\" }\n");
  return text;
}

}  // namespace

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::Make() {
  // Short: it holds sockets, whose paths have at most 107 bytes.
  std::string path = "/tmp/ferry-bench-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return ErrnoFailure("make a directory in /tmp");
  return TemporaryDirectory(path);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

const char* UcxTransports(UcxOver over) {
  return over == UcxOver::kTcp ? "tcp" : "posix,sysv,cma,self";
}

std::string Nodes::RuntimeDir(int node) const {
  return absl::StrCat(directory_.path(), "/", NodeName(node));
}

int64_t Nodes::Gpu(int node, int index) const {
  int64_t before = 0;
  for (int i = 0; i < node; ++i) before += 2 + static_cast<int64_t>(gpus_[i].size());
  return before + 2 + index;
}

absl::StatusOr<Nodes> Nodes::Start(const std::string& ferryd, UcxOver over, const Gpus& gpus,
                                   const std::string& limits) {
  ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Make());
  Nodes nodes(std::move(directory), ferryd);
  nodes.gpus_ = gpus;
  const int count = static_cast<int>(gpus.size());
  std::vector<int> ports(gpus.size());
  for (int& port : ports) {
    ASSIGN_OR_RETURN(port, FreeTcpPort());
  }
  for (int node = 0; node < count; ++node) {
    std::filesystem::create_directory(nodes.RuntimeDir(node));
    std::ofstream(nodes.RuntimeDir(node) + ".yaml")
        << ConfigOf(node, nodes.RuntimeDir(node), ports, over, gpus, limits);
    ASSIGN_OR_RETURN(tools::ChildProcess daemon, nodes.Spawn(node));
    nodes.daemons_.push_back(std::move(daemon));
  }
  for (int node = 0; node < count; ++node) RETURN_IF_ERROR(nodes.AwaitServing(node));
  return nodes;
}

absl::Status Nodes::AwaitServing(int node) const {
  const auto serving =
      tools::AwaitServing(RuntimeDir(node) + "/admin/admin.sock", "readiness", absl::Seconds(10));
  if (serving.ok()) return absl::OkStatus();
  return Annotate(serving.status(), absl::StrCat("start ", ferryd_, "; its log:\n",
                                                 ReadText(RuntimeDir(node) + ".log")));
}

absl::StatusOr<tools::ChildProcess> Nodes::Spawn(int node) const {
  const std::string log = RuntimeDir(node) + ".log";
  UniqueFd output(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!output.valid()) return ErrnoFailure(absl::StrCat("create ", log));
  tools::SpawnOptions options;
  options.arguments = {ferryd_, "--config", RuntimeDir(node) + ".yaml"};
  options.output = output.get();
  return tools::ChildProcess::Spawn(options);
}

absl::Status Nodes::Restart(int node) {
  daemons_[node].Wait();  // until it is gone it has its GPUs' locks
  ASSIGN_OR_RETURN(daemons_[node], Spawn(node));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ResidentBytes(pid_t pid) {
  for (absl::string_view line :
       absl::StrSplit(ReadText(absl::StrCat("/proc/", pid, "/status")), '\n')) {
    std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    uint64_t kib = 0;
    if (words.size() >= 2 && words[0] == "VmRSS:" && absl::SimpleAtoi(words[1], &kib))
      return kib * 1024;
  }
  return Error(absl::StatusCode::kInternal, Reason::kInternal,
               absl::StrCat("no VmRSS of process ", pid));
}

absl::StatusOr<absl::Duration> Nodes::Cpu() const {
  absl::Duration sum;
  for (const tools::ChildProcess& daemon : daemons_) {
    ASSIGN_OR_RETURN(const absl::Duration one, CpuTime(daemon.pid()));
    sum += one;
  }
  return sum;
}

absl::StatusOr<absl::Duration> CpuTime(pid_t pid) {
  const std::string stat = ReadText(absl::StrCat("/proc/", pid, "/stat"));
  // After the command's name, which may hold anything: field 3 on; utime and stime are 14 and 15.
  const size_t name_end = stat.rfind(')');
  std::vector<std::string> fields = absl::StrSplit(
      name_end == std::string::npos ? "" : stat.substr(name_end + 1), ' ', absl::SkipEmpty());
  uint64_t user = 0;
  uint64_t system = 0;
  if (fields.size() < 13 || !absl::SimpleAtoi(fields[11], &user) ||
      !absl::SimpleAtoi(fields[12], &system)) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal,
                 absl::StrCat("no CPU time of process ", pid));
  }
  return absl::Seconds(1) * static_cast<double>(user + system) /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

absl::StatusOr<int> FreeTcpPort() {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (!fd.valid() || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return ErrnoFailure("find a free port");
  }
  return ntohs(address.sin_port);
}

}  // namespace ferry::bench
