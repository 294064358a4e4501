// SPDX-License-Identifier: Apache-2.0
#include "device/host/host_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry {
namespace {

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

constexpr int kNeededSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

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

}  // namespace

absl::StatusOr<std::unique_ptr<HostMapping>> HostMapping::Map(UniqueFd memfd, uint64_t bytes,
                                                              Access access) {
  RETURN_IF_ERROR(CheckMemfd(memfd.get(), bytes));
  const int protection = access == Access::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const data = mmap(nullptr, bytes, protection, MAP_SHARED, memfd.get(), 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    const std::string doing = absl::StrCat("mapping ", bytes, " bytes of host memory");
    if (error == ENOMEM || error == EAGAIN) {
      return ErrnoError(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory, doing, error);
    }
    return ErrnoError(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid, doing, error);
  }
  std::unique_ptr<HostMapping> mapping(new HostMapping());
  mapping->memfd_ = std::move(memfd);
  mapping->data_ = static_cast<std::byte*>(data);
  mapping->bytes_ = bytes;
  // Clients' bytes belong neither into a core file of the daemon nor into what it forks.
  madvise(data, bytes, MADV_DONTDUMP);
  madvise(data, bytes, MADV_DONTFORK);
  return mapping;
}

void HostMapping::Populate() {
  struct stat file;
  constexpr uint64_t kBlock = 512;  // of st_blocks, whatever the file system's own
  if (fstat(memfd_.get(), &file) != 0 || static_cast<uint64_t>(file.st_blocks) * kBlock < bytes_)
    return;
  madvise(data_, bytes_, MADV_POPULATE_READ);  // older kernels refuse, and then copies fault
}

HostMapping::~HostMapping() {
  if (data_ != nullptr) FERRY_CHECK(munmap(data_, bytes_) == 0);
}

}  // namespace ferry
