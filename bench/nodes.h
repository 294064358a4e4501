// SPDX-License-Identifier: Apache-2.0
// Some ferryd, mostly two, as nodes of this host, each with two host devices and what GPUs it is
// given, for as long as the object lives. Without GPUs the first owns devices 0 and 1, the second 2
// and 3. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/ferryctl/child_process.h"

namespace ferry::bench {

// A directory that goes with its contents.
class TemporaryDirectory {
 public:
  static absl::StatusOr<TemporaryDirectory> Make();
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

enum class UcxOver { kSharedMemory, kTcp };
// What UCX_TLS says of each, for ferryd and for its own benchmark alike.
const char* UcxTransports(UcxOver over);

class Nodes {
 public:
  // `gpus`: by the driver's index, of each node; there are as many nodes. `limits`: more of that
  // section, ", name: value".
  using Gpus = std::vector<std::vector<int>>;
  static absl::StatusOr<Nodes> Start(const std::string& ferryd, UcxOver over,
                                     const Gpus& gpus = Gpus(2), const std::string& limits = "");

  std::string RuntimeDir(int node) const;
  std::string ClientDir(int node) const { return RuntimeDir(node) + "/client"; }
  // The global id of a node's first host device, and of its GPU, counted from 0.
  int64_t Host(int node) const { return Gpu(node, 0) - 2; }
  int64_t Gpu(int node, int index) const;
  // What all daemons together have taken.
  absl::StatusOr<absl::Duration> Cpu() const;
  pid_t pid(int node) const { return daemons_[node].pid(); }
  // Another life of a daemon that was killed; does not wait until it serves.
  absl::Status Restart(int node);
  absl::Status AwaitServing(int node) const;

 private:
  Nodes(TemporaryDirectory directory, std::string ferryd)
      : directory_(std::move(directory)), ferryd_(std::move(ferryd)) {}
  absl::StatusOr<tools::ChildProcess> Spawn(int node) const;

  TemporaryDirectory directory_;
  std::string ferryd_;
  Gpus gpus_;
  std::vector<tools::ChildProcess> daemons_;
};

// What a process takes, from /proc.
absl::StatusOr<uint64_t> ResidentBytes(pid_t pid);
absl::StatusOr<absl::Duration> CpuTime(pid_t pid);
absl::StatusOr<int> FreeTcpPort();

}  // namespace ferry::bench
