// SPDX-License-Identifier: Apache-2.0
// ferryd processes as nodes of one host: their configuration, start and loss, and what must be true
// at the end. Node i is "node-a", "node-b", ...; each has the next `devices` global ids. One
// thread.
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
  int devices = 2;  // host devices of each node
  int gpus = 0;  // GPUs of the fake CUDA, for each node; their ids follow those of its host devices
  bool own_gpus = false;  // GPUs of the CUDA that this process uses, instead of the fake's
  std::string fake_cuda;  // settings of the fake CUDA (tests/fake_cuda), as "memory_mib=64"
  std::string fake_nccl;  // settings of the fake NCCL (tests/fake_nccl)
  std::string transfer;   // configuration inside `transfer: { }`
  std::vector<std::string> transfers;  // the same for each daemon, instead of `transfer`
  std::string limits;                  // configuration inside `limits: { }`
  std::string more;                    // further sections of the configuration
  std::vector<uid_t> uids;             // users of the daemons; empty: this user
  std::vector<uint32_t> trusted_uids;  // peer.uids of all daemons
  bool secret = false;                 // all daemons share a secret; with `hosts` they do anyway
  bool proxies = false;                // the other daemons reach each daemon through a TcpProxy
  std::vector<std::string> hosts;      // the daemons' addresses, without ports; empty: 127.0.0.1
  // Words before each daemon's command line, such as "ip netns exec NAME"; empty: none.
  std::vector<std::vector<std::string>> launchers;
  std::vector<std::string> environment;  // variables of the daemons, added to this process's
  std::string log;  // one log for all, which no test reads; empty: a file for each
};

class Node {
 public:
  Node(std::string name, std::string directory, const std::string& config, SpawnOptions spawn);

  // Starts the daemon and waits until it serves. False, with the log as a failure of the test, if
  // it does not.
  bool Start();
  // Sends SIGTERM. The daemon must exit with 0 and leave no sockets.
  void Stop();
  void Kill() {
    if (!running()) ExpectNoCrash();
    killed_ = true;
    process_->Kill();
  }
  void Signal(int signal) { process_->Signal(signal); }
  bool running() { return process_ != nullptr && process_->Running(); }
  // Waits until the daemon has ended by itself, by this signal, as the test wanted it.
  void ExpectLoss(int signal);
  // Expects that the daemon runs, or that the test has ended it.
  void ExpectNoCrash();
  // Waits until no sessions, arenas and transfers are left; false if that takes too long.
  bool AwaitIdle();

  const std::string& name() const { return name_; }
  const std::string& runtime_dir() const { return directory_; }
  std::string client_dir() const { return directory_ + "/client"; }
  std::string config_file() const { return directory_ + ".yaml"; }
  std::string log_file() const { return directory_ + ".log"; }  // if the node has a log of its own
  std::string Log() const { return spawn_.output == log_file() ? ReadFile(log_file()) : ""; }
  Process& process() { return *process_; }
  Admin& admin() { return *admin_; }

 private:
  const std::string name_;
  const std::string directory_;
  SpawnOptions spawn_;
  std::unique_ptr<Process> process_;
  bool killed_ = false;  // whether the test has killed it
  std::unique_ptr<Admin> admin_;
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  bool Start();  // starts all nodes

  // The port on which node i listens for its peers.
  int port(size_t i) const { return ports_[i].port(); }
  Node& operator[](size_t i) { return *nodes_[i]; }
  size_t size() const { return nodes_.size(); }
  // The proxy through which the others reach node i, if there are proxies.
  TcpProxy& proxy(size_t i) { return *proxies_[i]; }
  // The first global device id of node i, plus `index`; Gpu: of its GPUs.
  uint64_t Device(size_t i, uint64_t index = 0) const { return i * devices_ + index; }
  uint64_t Gpu(size_t i, uint64_t index = 0) const { return Device(i, host_devices_ + index); }
  Session Open(size_t i, const std::string& name = "test");
  // Waits until node `from` says that its link to node `to` is up. Somebody must want the link.
  bool AwaitLink(size_t from, size_t to);

  // Must hold at the end of every test: nobody has crashed, nothing is left, every node stops
  // cleanly.
  void ExpectCleanEnd();
  void PrintLogs();
  const TemporaryDirectory& directory() const { return directory_; }

  static constexpr char kSecret[] = "the secret of a test's cluster";

 private:
  const uint64_t host_devices_;
  const uint64_t devices_;  // host devices and GPUs of a node
  TemporaryDirectory directory_;
  std::vector<ReservedPort> ports_;
  std::vector<std::unique_ptr<TcpProxy>> proxies_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

const char* FerryctlProgram();
const char* FerrydProgram();
const char* ClientProgram();        // tests/support/client
const char* TokenThiefProgram();    // tests/support/thief
const char* ClockStepLibrary();     // tests/support/clock_step
const char* StaleBytesLibrary();    // tests/support/stale_bytes
const char* FakeCudaLibrary();      // tests/fake_cuda
const char* FakeNcclLibrary();      // tests/fake_nccl
const char* FakeNvrtcLibrary();     // tests/fake_cuda
const char* FakeCublasLtLibrary();  // tests/fake_cuda

}  // namespace ferry::testing
