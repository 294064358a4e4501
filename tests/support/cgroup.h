// SPDX-License-Identifier: Apache-2.0
// A cgroup whose processes may have only so much of something. Needs root. One thread.
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
  // Of version 2 or 1, whichever is mounted. Null, and why, where there is no right to make one.
  static std::unique_ptr<Cgroup> OfMemory(uint64_t bytes, std::string* why);
  static std::unique_ptr<Cgroup> OfThreads(uint64_t count, std::string* why);
  // Its processes must be gone.
  ~Cgroup();
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;

  // From here on what `pid` touches counts.
  bool Add(pid_t pid);
  // Goes before a command line to run it there from its beginning.
  std::vector<std::string> launcher() const;

 private:
  static std::unique_ptr<Cgroup> Create(
      std::initializer_list<std::pair<const char*, const char*>> limits, uint64_t most,
      std::string* why);
  explicit Cgroup(std::string directory) : directory_(std::move(directory)) {}
  const std::string directory_;
};

}  // namespace ferry::testing
