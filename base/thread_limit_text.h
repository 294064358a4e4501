// SPDX-License-Identifier: Apache-2.0
// Names the limit that let no more threads be started: the kernel says only EAGAIN for all of them.
// Any thread. Used by the client library too, so it needs nothing but the C and C++ libraries.
#pragma once

#include <ctype.h>
#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "base/thread_room.h"

namespace ferry {

namespace thread_limits {

struct Use {
  uint64_t used = 0, most = 0;
  bool TooFewFor(uint64_t more) const { return used + more > most; }
};

// The number that the file begins with; nothing if it begins with none (as "max").
inline std::optional<uint64_t> NumberIn(const std::string& file) {
  std::ifstream in(file);
  uint64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

inline std::optional<uint64_t> LimitOf(decltype(RLIMIT_NPROC) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

// Address space of this process, in bytes: used, and the most it may have.
inline std::optional<Use> AddressSpace() {
  const auto most = LimitOf(RLIMIT_AS), pages = NumberIn("/proc/self/statm");
  if (!most || !pages) return std::nullopt;
  return Use{*pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)), *most};
}

// Threads of the user in all processes that can be seen. The kernel does not limit root's.
inline std::optional<Use> ThreadsOfUser() {
  const auto most = LimitOf(RLIMIT_NPROC);
  DIR* const proc = most && getuid() != 0 ? opendir("/proc") : nullptr;
  if (proc == nullptr) return std::nullopt;
  Use use{0, *most};
  while (const dirent* entry = readdir(proc)) {
    if (isdigit(static_cast<unsigned char>(entry->d_name[0])) == 0) continue;
    std::ifstream status(std::string("/proc/") + entry->d_name + "/status");
    uint64_t uid = UINT64_MAX, threads = 0;
    for (std::string word; status >> word;) {
      if (word == "Uid:") status >> uid;  // the real one
      if (word == "Threads:") status >> threads;
    }
    if (uid == getuid()) use.used += threads;
  }
  closedir(proc);
  return use;
}

// Threads of the cgroup, or of the cgroup above it in which the fewest are left.
inline std::optional<Use> ThreadsOfCgroup() {
  std::optional<Use> fewest;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "8:pids:/path", or "0::/path"
    std::istringstream parts(line);
    std::string number, controllers, path;
    std::getline(parts, number, ':');
    std::getline(parts, controllers, ':');
    std::getline(parts, path);
    if (!controllers.empty() && controllers != "pids") continue;
    const std::string root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/pids";
    for (;; path.resize(path.find_last_of('/'))) {
      const auto used = NumberIn(root + path + "/pids.current");
      const auto most = NumberIn(root + path + "/pids.max");
      if (used && most && (!fewest || *most - *used < fewest->most - fewest->used)) {
        fewest = Use{*used, *most};
      }
      if (path.find('/') == std::string::npos) break;
    }
  }
  return fewest;
}

}  // namespace thread_limits

// What to append to the error when `count` threads could not be started: "; its user may have 16
// threads (ulimit -u)". If no limit is seen to be reached, all that may be meant.
inline std::string ThreadLimitText(uint64_t count = 1) {
  using thread_limits::Use;
  constexpr uint64_t kDefaultStack = uint64_t{8} << 20;
  const uint64_t stack = thread_limits::LimitOf(RLIMIT_STACK).value_or(kDefaultStack);
  const std::optional<Use> space = thread_limits::AddressSpace();
  const std::optional<Use> user = thread_limits::ThreadsOfUser();
  const std::optional<Use> cgroup = thread_limits::ThreadsOfCgroup();
  const bool space_is_short = space && space->TooFewFor(count * (stack + kThreadHeap));
  const bool user_is_full = user && user->TooFewFor(count);
  const bool cgroup_is_full = cgroup && cgroup->TooFewFor(count);
  const bool unknown = !space_is_short && !user_is_full && !cgroup_is_full;
  const auto limit = [](const std::optional<Use>& use) {
    return use ? std::to_string(use->most) : "any number of";
  };
  std::string text;
  if (space_is_short || (unknown && space)) {
    text += "; this process may have " + limit(space) + " bytes of address space (ulimit -v)";
  }
  if (user_is_full || unknown) {
    text += "; its user may have " + limit(user) + " threads (ulimit -u)";
  }
  if (cgroup_is_full || unknown) {
    text += "; its cgroup may have " + limit(cgroup) + " threads (pids.max)";
  }
  return text;
}

}  // namespace ferry
