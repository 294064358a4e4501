// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cluster.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace ferry::testing {
namespace {

std::string NodeName(int i) {
  return absl::StrCat("node-", std::string(1, static_cast<char>('a' + i)));
}

std::string GpusOf(int self, const ClusterOptions& options) {
  if (options.gpus == 0) return "none";
  std::vector<int> indices;
  for (int i = 0; i < options.gpus; ++i) indices.push_back(self * options.gpus + i);
  return absl::StrCat("[", absl::StrJoin(indices, ", "), "]");
}

// A program beside ours, as in a bundle; else where it was built.
std::string Beside(const char* name, const char* built) {
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path found = self.parent_path() / name;
  return std::filesystem::exists(found, ignored) ? found.string() : built;
}

bool HasSecret(const ClusterOptions& options) { return options.secret || !options.hosts.empty(); }

std::string SecretFile(const std::string& runtime_dir) { return runtime_dir + ".secret"; }

void WriteSecret(const ClusterOptions& options, const std::string& file,
                 const std::optional<uid_t>& reader) {
  if (!HasSecret(options)) return;
  WriteFile(file, Cluster::kSecret);
  FERRY_CHECK(chmod(file.c_str(), 0600) == 0);
  if (reader.has_value()) FERRY_CHECK(chown(file.c_str(), *reader, *reader) == 0);
}

std::string ConfigOf(int self, const ClusterOptions& options, const std::string& runtime_dir,
                     const std::vector<ReservedPort>& ports,
                     const std::vector<std::unique_ptr<TcpProxy>>& proxies) {
  const auto host = [&](int i) {
    return options.hosts.empty() ? "127.0.0.1" : options.hosts[static_cast<size_t>(i)];
  };
  std::string text = absl::StrCat("node: { name: ", NodeName(self), ", runtime_dir: ", runtime_dir,
                                  " }\ndevices: { host: ", options.devices,
                                  ", gpus: ", GpusOf(self, options), " }\n");
  if (options.nodes > 1) {
    absl::StrAppend(&text, "membership:\n  provider: static\n  nodes:\n");
    for (int i = 0; i < options.nodes; ++i) {
      std::vector<int> ids;
      const int each = options.devices + options.gpus;
      for (int d = 0; d < each; ++d) ids.push_back(i * each + d);
      absl::StrAppend(&text, "    - { name: ", NodeName(i), ", address: \"", host(i), ":",
                      options.proxies ? proxies[i]->port() : ports[i].port(), "\", ids: [",
                      absl::StrJoin(ids, ", "), "] }\n");
    }
    absl::StrAppend(
        &text, "peer: { listen: \"", host(self), ":", ports[self].port(),
        "\", insecure: ", options.hosts.empty() ? "false" : "true",
        ", forwarded: true, uids: [",  // proxies, and daemons that stand in for others
        absl::StrJoin(options.trusted_uids, ", "), "]",
        HasSecret(options) ? absl::StrCat(", secret_file: ", SecretFile(runtime_dir)) : "", " }\n");
  }
  const std::string& transfer =
      options.transfers.empty() ? options.transfer : options.transfers[static_cast<size_t>(self)];
  if (!transfer.empty()) absl::StrAppend(&text, "transfer: { ", transfer, " }\n");
  if (!options.limits.empty()) absl::StrAppend(&text, "limits: { ", options.limits, " }\n");
  return text + options.more;
}

}  // namespace

const char* FerryctlProgram() {
  static const std::string program = Beside("ferryctl", FERRYCTL_PROGRAM);
  return program.c_str();
}
const char* FerrydProgram() {
  static const std::string program = Beside("ferryd", FERRYD_PROGRAM);
  return program.c_str();
}
const char* ClientProgram() {
  static const std::string program = Beside("ferry_test_client", CLIENT_PROGRAM);
  return program.c_str();
}
const char* TokenThiefProgram() { return TOKEN_THIEF_PROGRAM; }
const char* ClockStepLibrary() { return CLOCK_STEP_LIBRARY; }
const char* StaleBytesLibrary() { return STALE_BYTES_LIBRARY; }
const char* FakeCudaLibrary() { return FAKE_CUDA_LIBRARY; }
const char* FakeNcclLibrary() { return FAKE_NCCL_LIBRARY; }
const char* FakeNvrtcLibrary() { return FAKE_NVRTC_LIBRARY; }
const char* FakeCublasLtLibrary() { return FAKE_CUBLASLT_LIBRARY; }

Node::Node(std::string name, std::string directory, const std::string& config, SpawnOptions spawn)
    : name_(std::move(name)), directory_(std::move(directory)), spawn_(std::move(spawn)) {
  std::filesystem::create_directory(directory_);
  std::string program = FerrydProgram();
  if (spawn_.uid.has_value()) {
    FERRY_CHECK(chown(directory_.c_str(), *spawn_.uid, *spawn_.uid) == 0);
    program = directory_ + ".ferryd";  // the build directory may be closed to them
    std::filesystem::copy_file(FerrydProgram(), program);
    FERRY_CHECK(chmod(program.c_str(), 0755) == 0);
  }
  WriteFile(config_file(), config);
  for (const std::string& argument : {program, std::string("--config"), config_file()})
    spawn_.arguments.push_back(argument);
  if (spawn_.output.empty()) spawn_.output = log_file();
}

bool Node::Start() {
  process_ = std::make_unique<Process>(spawn_);
  killed_ = false;
  const std::string socket = directory_ + "/admin/admin.sock";
  const bool serves = Await([&] {
    if (!process_->Running()) return true;
    if (!std::filesystem::exists(socket)) return false;
    if (admin_ == nullptr) admin_ = std::make_unique<Admin>(socket);
    return admin_->Health("readiness") == "SERVING";
  });
  if (serves && process_->Running()) return true;
  ADD_FAILURE() << name_ << " does not serve; its log:\n" << Log();
  return false;
}

void Node::Stop() {
  process_->Signal(SIGTERM);
  const std::optional<int> status = process_->Wait();
  EXPECT_EQ(status, std::optional<int>(0)) << name_ << " did not stop cleanly";
  process_->Kill();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
    EXPECT_FALSE(entry.is_socket()) << "left behind: " << entry.path();
  }
}

void Node::ExpectLoss(int signal) {
  EXPECT_EQ(process_->Wait(), std::optional<int>(128 + signal)) << name_;
  process_ = nullptr;
}

void Node::ExpectNoCrash() {
  if (process_ == nullptr) return;
  const std::optional<int> status = process_->Wait(std::chrono::milliseconds(0));
  EXPECT_TRUE(status == 0 || (status == 128 + SIGKILL && killed_))
      << name_ << " ended by itself: exit status " << status.value_or(-1);
}

bool Node::AwaitIdle() {
  admin::v1::GetStatusResponse status;
  uint64_t arena_bytes = 0;
  const bool idle = Await([&] {
    status = admin_->Status();
    arena_bytes = admin_->ArenaBytes();
    return status.sessions() == 0 && status.transfers_in_flight() == 0 && arena_bytes == 0;
  });
  EXPECT_TRUE(idle) << name_ << " is not idle: " << status.sessions() << " sessions, "
                    << status.transfers_in_flight() << " transfers, " << arena_bytes
                    << " bytes of arenas\n"
                    << admin_->Dump();
  return idle;
}

Cluster::Cluster(const ClusterOptions& options)
    : host_devices_(static_cast<uint64_t>(options.devices)),
      devices_(static_cast<uint64_t>(options.devices + options.gpus)),
      ports_(static_cast<size_t>(options.nodes)) {
  for (const ReservedPort& port : ports_) {
    if (options.proxies) proxies_.push_back(std::make_unique<TcpProxy>(port.port()));
  }
  for (int i = 0; i < options.nodes; ++i) {
    const std::string runtime_dir = directory_ / std::string(1, static_cast<char>('a' + i));
    SpawnOptions spawn;
    if (!options.uids.empty()) spawn.uid = options.uids[static_cast<size_t>(i)];
    if (!options.launchers.empty()) spawn.arguments = options.launchers[static_cast<size_t>(i)];
    spawn.environment = options.environment;
    if (options.gpus > 0 && !options.own_gpus) {
      // Tests that run side by side have GPUs of their own, which nobody else locks.
      const std::string settings = absl::StrCat("devices=", options.nodes * options.gpus,
                                                ";seed=", getpid(), ";", options.fake_cuda);
      spawn.environment.insert(spawn.environment.end(),
                               {absl::StrCat("FERRY_CUDA_LIBRARY=", FakeCudaLibrary()),
                                absl::StrCat("FERRY_NCCL_LIBRARY=", FakeNcclLibrary()),
                                absl::StrCat("FERRY_FAKE_NCCL=", options.fake_nccl),
                                absl::StrCat("FERRY_NVML_LIBRARY=", FakeCudaLibrary()),
                                absl::StrCat("FERRY_CUBLASLT_LIBRARY=", FakeCublasLtLibrary()),
                                absl::StrCat("FERRY_FAKE_CUDA=", settings)});
    }
    spawn.output = options.log;
    WriteSecret(options, SecretFile(runtime_dir), spawn.uid);
    nodes_.push_back(std::make_unique<Node>(
        NodeName(i), runtime_dir, ConfigOf(i, options, runtime_dir, ports_, proxies_), spawn));
  }
}

bool Cluster::Start() {
  for (auto& node : nodes_) {
    if (!node->Start()) return false;
  }
  return true;
}

Session Cluster::Open(size_t i, const std::string& name) {
  SessionOptions options;
  options.client_dir = nodes_[i]->client_dir();
  options.name = name;
  Result<Session> session = Session::Open(options);
  if (!session.ok()) {
    ADD_FAILURE() << session.status().ToString();
    PrintLogs();
    abort();
  }
  return std::move(*session);
}

bool Cluster::AwaitLink(size_t from, size_t to) {
  return Await([&] { return nodes_[from]->admin().PeerState(nodes_[to]->name()) == "up"; });
}

void Cluster::ExpectCleanEnd() {
  for (auto& node : nodes_) {
    if (node->running()) {
      node->AwaitIdle();
    } else {
      node->ExpectNoCrash();
    }
  }
  for (auto& node : nodes_) {
    if (node->running()) node->Stop();
  }
}

void Cluster::PrintLogs() {
  for (auto& node : nodes_) {
    std::cerr << "---- log of " << node->name() << "\n" << node->Log();
  }
}

}  // namespace ferry::testing
