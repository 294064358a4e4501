// SPDX-License-Identifier: Apache-2.0
// Two ferryd as two nodes of this host, each with two host devices, for as long as the object
// lives. The first owns devices 0 and 1, the second 2 and 3. One thread.
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
  static absl::StatusOr<Nodes> Start(const std::string& ferryd, UcxOver over);

  std::string ClientDir(int node) const { return RuntimeDir(node) + "/client"; }
  pid_t pid(int node) const { return daemons_[node].pid(); }
  // Another life of a daemon that was killed; does not wait until it serves.
  absl::Status Restart(int node);

 private:
  Nodes(TemporaryDirectory directory, std::string ferryd)
      : directory_(std::move(directory)), ferryd_(std::move(ferryd)) {}
  absl::StatusOr<tools::ChildProcess> Spawn(int node) const;
  std::string RuntimeDir(int node) const;

  TemporaryDirectory directory_;
  std::string ferryd_;
  std::vector<tools::ChildProcess> daemons_;
};

// What a process takes, from /proc.
absl::StatusOr<uint64_t> ResidentBytes(pid_t pid);
absl::StatusOr<absl::Duration> CpuTime(pid_t pid);
absl::StatusOr<int> FreeTcpPort();

}  // namespace ferry::bench
