// SPDX-License-Identifier: Apache-2.0
#include "device/memfd.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr int kNeededSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

absl::Status CheckMemfd(int fd, uint64_t bytes) {
  const std::string doing = absl::StrCat("mapping ", bytes, " bytes of host memory");
  const auto invalid = [&](absl::string_view why) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 absl::StrCat(doing, ": ", why));
  };
  if (fd < 0) return invalid("no descriptor came with it");
  if (bytes == 0) return invalid("an arena has at least one byte");
  if (bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return invalid("more than a file can hold");
  }
  // Only memfds (and files of tmpfs or hugetlbfs, which cannot be sealed this far) answer this.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) return invalid("the descriptor is not a memfd");
  if ((seals & kNeededSeals) != kNeededSeals) {
    return Error(
        absl::StatusCode::kInvalidArgument, Reason::kMemfdUnsealed,
        absl::StrCat(doing, ": the memfd lacks F_SEAL_SHRINK, F_SEAL_GROW or F_SEAL_SEAL"));
  }
  struct statfs file_system;
  if (fstatfs(fd, &file_system) != 0) {
    return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal, doing, errno);
  }
  // A huge page that cannot be had is a SIGBUS at the first touch, not an error here.
  if (file_system.f_type != TMPFS_MAGIC) return invalid("memfds of huge pages are not supported");
  struct stat file;
  if (fstat(fd, &file) != 0) {
    return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal, doing, errno);
  }
  if (static_cast<uint64_t>(file.st_size) < bytes) {
    return invalid(absl::StrCat("the memfd has only ", file.st_size, " bytes"));
  }
  return absl::OkStatus();
}

bool MayBeGpuMemory(int fd) {
  if (fcntl(fd, F_GET_SEALS) >= 0) return true;
  struct statx info;
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &info) != 0) return false;
  const mode_t type = info.stx_mode & S_IFMT;
  return type == S_IFCHR || type == 0;
}

}  // namespace ferry
