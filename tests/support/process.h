// SPDX-License-Identifier: Apache-2.0
// Runs another program as long as the object lives: its destructor kills and reaps it. For one
// thread. Children die with that thread too (PR_SET_PDEATHSIG), so that an aborted test leaves
// nothing behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "tests/support/await.h"

namespace ferry::testing {

struct SpawnOptions {
  std::vector<std::string> arguments;  // arguments[0] is the program's path
  std::string output;        // file for stdout and stderr, appended to; empty: this process's
  bool pipes = false;        // its stdin and stdout are pipes to this process
  std::optional<uid_t> uid;  // user and group that the program becomes first
  std::vector<std::string> environment;  // "NAME=VALUE"; added to this process's
};

class Process {
 public:
  explicit Process(const SpawnOptions& options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Sends a signal. After SIGSTOP the program has stopped when this returns.
  void Signal(int signal) const;
  // Its exit status, or 128 + the signal that ended it; nothing if it still runs after `patience`.
  std::optional<int> Wait(std::chrono::milliseconds patience = kSoon);
  bool Running() { return !Wait(std::chrono::milliseconds(0)).has_value(); }
  // After its end: the most bytes of memory that were resident at one time.
  uint64_t PeakMemory() const { return peak_memory_; }
  // Sends SIGKILL and waits until the program is gone.
  void Kill();
  int input() const { return input_.get(); }    // writes to its stdin
  int output() const { return output_.get(); }  // reads its stdout

  size_t OpenFds() const;
  // How many lines of /proc/PID/maps name a memfd.
  size_t MemfdMappings() const;

 private:
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  UniqueFd input_;
  UniqueFd output_;
  std::optional<int> status_;
  uint64_t peak_memory_ = 0;
};

// The exit status of a program that has run to its end, and what it printed on both streams.
struct Finished {
  int status = -1;
  std::string output;
};
Finished RunProgram(const std::vector<std::string>& arguments,
                    std::chrono::milliseconds patience = kSoon);

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& bytes);

// A directory in /tmp that is removed with its contents. Its path is short, because paths of
// sockets have at most 107 bytes.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A port of 127.0.0.1 that no other process gets as long as the object lives. It is bound and never
// listened on. So a daemon, which sets SO_REUSEADDR too, can listen on it, and again after a
// restart.
class ReservedPort {
 public:
  ReservedPort();
  int port() const { return port_; }

 private:
  UniqueFd socket_;
  int port_ = 0;
};

}  // namespace ferry::testing
