// SPDX-License-Identifier: Apache-2.0
// ferryd processes (mostly two) as nodes of this host, each with two host devices and the GPUs that
// it is given; they live as long as the object. Without GPUs the first node owns devices 0 and 1,
// the second 2 and 3. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/ferryctl/child_process.h"

namespace ferry::bench {

// A directory that is removed with its contents.
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
// The UCX_TLS for each, for ferryd and for UCX's own benchmark.
const char* UcxTransports(UcxOver over);

class Nodes {
 public:
  // The GPUs of each node, by the driver's index; there are as many nodes as entries. `limits`:
  // more text inside that section, as ", name: value".
  using Gpus = std::vector<std::vector<int>>;
  static absl::StatusOr<Nodes> Start(const std::string& ferryd, UcxOver over,
                                     const Gpus& gpus = Gpus(2), const std::string& limits = "");

  std::string RuntimeDir(int node) const;
  std::string ClientDir(int node) const { return RuntimeDir(node) + "/client"; }
  // The global id of the node's first host device; of its GPU number `index`, counted from 0.
  int64_t Host(int node) const { return Gpu(node, 0) - 2; }
  int64_t Gpu(int node, int index) const;
  // CPU time that all daemons together have used.
  absl::StatusOr<absl::Duration> Cpu() const;
  pid_t pid(int node) const { return daemons_[node].pid(); }
  // Starts a daemon again that was killed. Does not wait until it serves.
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

// What a process uses, from /proc.
absl::StatusOr<uint64_t> ResidentBytes(pid_t pid);
absl::StatusOr<absl::Duration> CpuTime(pid_t pid);
absl::StatusOr<int> FreeTcpPort();

}  // namespace ferry::bench
