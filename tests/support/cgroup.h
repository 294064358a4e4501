// SPDX-License-Identifier: Apache-2.0
// A cgroup that bounds the memory or the threads of its processes. Needs root. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ferry::testing {

class Cgroup {
 public:
  // Makes a cgroup of version 2 or 1, whichever is mounted. Null, and the reason in `why`, where
  // this process may not make one.
  static std::unique_ptr<Cgroup> OfMemory(uint64_t bytes, std::string* why);
  static std::unique_ptr<Cgroup> OfThreads(uint64_t count, std::string* why);
  // The cgroup's processes must be gone.
  ~Cgroup();
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;

  // From here on the memory that `pid` touches counts.
  bool Add(pid_t pid);
  // Words to put before a command line to run it in the cgroup from its start.
  std::vector<std::string> launcher() const;

 private:
  static std::unique_ptr<Cgroup> Create(
      std::initializer_list<std::pair<const char*, const char*>> limits, uint64_t most,
      std::string* why);
  explicit Cgroup(std::string directory) : directory_(std::move(directory)) {}
  const std::string directory_;
};

}  // namespace ferry::testing
