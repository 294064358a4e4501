// SPDX-License-Identifier: Apache-2.0
#include "tests/support/memory_cgroup.h"

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

std::unique_ptr<MemoryCgroup> MemoryCgroup::Create(uint64_t bytes, std::string* why) {
  const std::string name = absl::StrCat("ferry-test-", getpid());
  for (const auto& [parent, limit] :
       {std::pair("/sys/fs/cgroup/", "/memory.max"),
        std::pair("/sys/fs/cgroup/memory/", "/memory.limit_in_bytes")}) {
    const std::string directory = parent + name;
    if (mkdir(directory.c_str(), 0755) != 0) {
      *why = absl::StrCat("make ", directory, ": ", strerror(errno));
      continue;
    }
    std::unique_ptr<MemoryCgroup> made(new MemoryCgroup(directory));
    if (Write(directory + limit, absl::StrCat(bytes))) return made;
    *why = absl::StrCat("write ", directory, limit, ": ", strerror(errno));
  }
  return nullptr;
}

MemoryCgroup::~MemoryCgroup() {
  Await([&] { return rmdir(directory_.c_str()) == 0 || errno != EBUSY; });
}

bool MemoryCgroup::Add(pid_t pid) { return Write(directory_ + "/cgroup.procs", absl::StrCat(pid)); }

}  // namespace ferry::testing
