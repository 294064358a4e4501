// SPDX-License-Identifier: Apache-2.0
// A cgroup whose processes may have only so much memory. Needs root. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

namespace ferry::testing {

class MemoryCgroup {
 public:
  // Of version 2 or 1, whichever is mounted. Null, and why, where there is no right to make one.
  static std::unique_ptr<MemoryCgroup> Create(uint64_t bytes, std::string* why);
  // Its processes must be gone.
  ~MemoryCgroup();
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;

  // From here on what `pid` touches counts.
  bool Add(pid_t pid);

 private:
  explicit MemoryCgroup(std::string directory) : directory_(std::move(directory)) {}
  const std::string directory_;
};

}  // namespace ferry::testing
