// SPDX-License-Identifier: Apache-2.0
// Runs another program as long as the object lives: its destructor kills and reaps it. One thread
// at a time.
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
  std::vector<std::string> arguments;    // arguments[0] is the program, looked up in PATH
  std::vector<std::string> environment;  // "NAME=value"; added to this process's
  int fd = -1;                           // becomes the child's fd 3
  int output = -1;                       // becomes its stdout and stderr; -1: it has this process's
};

class ChildProcess {
 public:
  static absl::StatusOr<ChildProcess> Spawn(const SpawnOptions& options);
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Waits for the program's end. Returns its exit status, or 128 + the signal. `used`, unless null,
  // gets the resources that it used.
  int Wait(rusage* used = nullptr);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  void Kill();
  pid_t pid_;
};

// Runs a program to its end. Returns what it printed on stdout and stderr; an error if it failed.
absl::StatusOr<std::string> RunAndRead(SpawnOptions options);

}  // namespace ferry::tools
