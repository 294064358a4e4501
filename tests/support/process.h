// SPDX-License-Identifier: Apache-2.0
// Another program for as long as its object lives: killed and reaped with it. Its own thread only;
// the children die with that thread too (PR_SET_PDEATHSIG), so that an aborted test leaves nothing
// behind.
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
  std::vector<std::string> arguments;    // arguments[0]: path of the program
  std::string output;                    // file for stdout and stderr, appended to; empty: ours
  bool pipes = false;                    // stdin and stdout are pipes to us
  std::optional<uid_t> uid;              // become this user (and group) first
  std::vector<std::string> environment;  // "NAME=VALUE", over ours
};

class Process {
 public:
  explicit Process(const SpawnOptions& options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // After SIGSTOP it has stopped when this returns.
  void Signal(int signal) const;
  // Its exit status, 128 + the signal that ended it, or nothing if it still runs after `patience`.
  std::optional<int> Wait(std::chrono::milliseconds patience = kSoon);
  bool Running() { return !Wait(std::chrono::milliseconds(0)).has_value(); }
  // Of one that has ended: the most memory that was resident at a time, bytes.
  uint64_t PeakMemory() const { return peak_memory_; }
  // SIGKILL, and until it is gone.
  void Kill();
  int input() const { return input_.get(); }    // what we write it reads
  int output() const { return output_.get(); }  // what it writes we read

  size_t OpenFds() const;
  // Lines of /proc/PID/maps that name a memfd.
  size_t MemfdMappings() const;

 private:
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  UniqueFd input_;
  UniqueFd output_;
  std::optional<int> status_;
  uint64_t peak_memory_ = 0;
};

// Runs a program to its end: its exit status, and what it printed on both streams.
struct Finished {
  int status = -1;
  std::string output;
};
Finished RunProgram(const std::vector<std::string>& arguments,
                    std::chrono::milliseconds patience = kSoon);

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& bytes);

// A directory in /tmp that goes with its contents. Short: sockets' paths have at most 107 bytes.
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

// A port of 127.0.0.1 that nobody else gets as long as the object lives: bound and never listened
// on, so that a daemon, which sets SO_REUSEADDR as well, can listen on it, and again after a
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
