// SPDX-License-Identifier: Apache-2.0
// ferryd processes as nodes of one host: configuration, start, loss, and what must be true at the
// end. Node i is "node-a", "node-b", ...; each has the next `devices` global ids. One thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ferry/ferry.hpp"
#include "tests/support/admin.h"
#include "tests/support/process.h"
#include "tests/support/tcp_proxy.h"

namespace ferry::testing {

struct ClusterOptions {
  int nodes = 2;
  int devices = 2;                     // host devices of each node
  int gpus = 0;                        // and GPUs of the fake CUDA, its own; their ids follow
  bool own_gpus = false;               // of the CUDA that this process uses, instead of the fake's
  std::string fake_cuda;               // its settings (tests/fake_cuda), as "memory_mib=64"
  std::string fake_nccl;               // and of the fake NCCL (tests/fake_nccl)
  std::string transfer;                // inside `transfer: { }`
  std::vector<std::string> transfers;  // instead, of each daemon
  std::string limits;                  // inside `limits: { }`
  std::string more;                    // further sections
  std::vector<uid_t> uids;             // of the daemons; empty: ours
  std::vector<uint32_t> trusted_uids;  // peer.uids of all
  bool secret = false;                 // that all share; with `hosts` there is one anyway
  bool proxies = false;                // the others meet each daemon through a TcpProxy
  std::vector<std::string> hosts;      // their addresses, without ports; empty: 127.0.0.1
  // What runs each daemon, such as "ip netns exec NAME"; empty: nothing.
  std::vector<std::vector<std::string>> launchers;
  std::vector<std::string> environment;  // of the daemons, over ours
  std::string log;  // where all of them log that has nothing to be read; empty: a file each
};

class Node {
 public:
  Node(std::string name, std::string directory, const std::string& config, SpawnOptions spawn);

  // Starts it and waits until it serves; false, with the log as a failure of the test, if it does
  // not.
  bool Start();
  // SIGTERM; it must exit with 0 and leave no sockets.
  void Stop();
  void Kill() {
    if (!running()) ExpectNoCrash();
    killed_ = true;
    process_->Kill();
  }
  void Signal(int signal) { process_->Signal(signal); }
  bool running() { return process_ != nullptr && process_->Running(); }
  // If it does not run, then because the test ended it.
  void ExpectNoCrash();
  // No sessions, arenas and transfers are left, in time.
  bool AwaitIdle();

  const std::string& name() const { return name_; }
  const std::string& runtime_dir() const { return directory_; }
  std::string client_dir() const { return directory_ + "/client"; }
  std::string config_file() const { return directory_ + ".yaml"; }
  std::string log_file() const { return directory_ + ".log"; }  // if it has one
  std::string Log() const { return spawn_.output == log_file() ? ReadFile(log_file()) : ""; }
  Process& process() { return *process_; }
  Admin& admin() { return *admin_; }

 private:
  const std::string name_;
  const std::string directory_;
  SpawnOptions spawn_;
  std::unique_ptr<Process> process_;
  bool killed_ = false;  // by the test
  std::unique_ptr<Admin> admin_;
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  bool Start();  // all of them

  // Where node i listens for its peers.
  int peer_port(size_t i) const { return ports_[i].port(); }
  Node& operator[](size_t i) { return *nodes_[i]; }
  size_t size() const { return nodes_.size(); }
  // What the others meet node i through, if there are proxies.
  TcpProxy& proxy(size_t i) { return *proxies_[i]; }
  int port(size_t i) const { return ports_[i].port(); }  // on which node i listens for peers
  // The first global device id of node i.
  uint64_t Device(size_t i, uint64_t index = 0) const { return i * devices_ + index; }
  uint64_t Gpu(size_t i, uint64_t index = 0) const { return Device(i, host_devices_ + index); }
  Session Open(size_t i, const std::string& name = "test", int post_by = FERRY_POST_BY_ANY);
  // Waits until the links of all running nodes are up. Somebody must want them.
  bool AwaitLink(size_t from, size_t to);

  // What the teardown of every test asks: nobody crashed, nothing is left, everybody stops cleanly.
  void ExpectCleanEnd();
  void PrintLogs();
  const TemporaryDirectory& directory() const { return directory_; }

  static constexpr char kSecret[] = "the secret of a test's cluster";

 private:
  const uint64_t host_devices_;
  const uint64_t devices_;  // with GPUs
  TemporaryDirectory directory_;
  std::vector<ReservedPort> ports_;
  std::vector<std::unique_ptr<TcpProxy>> proxies_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

const char* FerryctlProgram();
const char* FerrydProgram();
const char* ClientProgram();      // tests/support/client
const char* TokenThiefProgram();  // tests/support/thief
const char* ClockStepLibrary();   // tests/support/clock_step
const char* StaleBytesLibrary();  // tests/support/stale_bytes
const char* FakeCudaLibrary();    // tests/fake_cuda
const char* FakeNcclLibrary();    // tests/fake_nccl

}  // namespace ferry::testing
