// SPDX-License-Identifier: Apache-2.0
// Another program, run for as long as its object lives: killed and reaped with it. One thread at a
// time.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ferry::tools {

struct SpawnOptions {
  std::vector<std::string> arguments;    // arguments[0]: the program, looked up in PATH
  std::vector<std::string> environment;  // "NAME=value", over our own
  int fd = -1;                           // becomes the child's fd 3
  int output = -1;                       // becomes its stdout and stderr; -1: ours
};

class ChildProcess {
 public:
  static absl::StatusOr<ChildProcess> Spawn(const SpawnOptions& options);
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Waits for its end: its exit status, or 128 + the signal. `used`, unless it is null, gets what
  // it took.
  int Wait(rusage* used = nullptr);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  void Kill();
  pid_t pid_;
};

// Runs a program to its end and returns what it printed on stdout and stderr; an error if it
// failed.
absl::StatusOr<std::string> RunAndRead(SpawnOptions options);

}  // namespace ferry::tools
