// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "tests/support/await.h"

namespace ferry::testing {
namespace {

bool Write(const std::string& file, const std::string& text) {
  const UniqueFd fd(open(file.c_str(), O_WRONLY | O_CLOEXEC));
  return fd.valid() &&
         write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

std::unique_ptr<Cgroup> Cgroup::OfMemory(uint64_t bytes, std::string* why) {
  return Create(
      {{"/sys/fs/cgroup/", "/memory.max"}, {"/sys/fs/cgroup/memory/", "/memory.limit_in_bytes"}},
      bytes, why);
}

std::unique_ptr<Cgroup> Cgroup::OfThreads(uint64_t count, std::string* why) {
  return Create({{"/sys/fs/cgroup/", "/pids.max"}, {"/sys/fs/cgroup/pids/", "/pids.max"}}, count,
                why);
}

std::unique_ptr<Cgroup> Cgroup::Create(
    std::initializer_list<std::pair<const char*, const char*>> limits, uint64_t most,
    std::string* why) {
  const std::string name = absl::StrCat("ferry-test-", getpid());
  for (const auto& [parent, limit] : limits) {
    const std::string directory = parent + name;
    if (mkdir(directory.c_str(), 0755) != 0) {
      *why = absl::StrCat("make ", directory, ": ", strerror(errno));
      continue;
    }
    std::unique_ptr<Cgroup> made(new Cgroup(directory));
    if (Write(directory + limit, absl::StrCat(most))) return made;
    *why = absl::StrCat("write ", directory, limit, ": ", strerror(errno));
  }
  return nullptr;
}

Cgroup::~Cgroup() {
  Await([&] { return rmdir(directory_.c_str()) == 0 || errno != EBUSY; });
}

std::vector<std::string> Cgroup::launcher() const {
  return {"/bin/sh", "-c", absl::StrCat("echo $$ > ", directory_, "/cgroup.procs && exec \"$@\""),
          "sh"};
}

bool Cgroup::Add(pid_t pid) { return Write(directory_ + "/cgroup.procs", absl::StrCat(pid)); }

}  // namespace ferry::testing
