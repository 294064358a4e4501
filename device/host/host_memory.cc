// SPDX-License-Identifier: Apache-2.0
#include "device/host/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "device/huge_pages.h"
#include "device/memfd.h"

namespace ferry {
namespace {

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

absl::Status MakingFailed(uint64_t bytes, int error) {
  const bool no_descriptors = error == EMFILE || error == ENFILE;
  return ErrnoError(absl::StatusCode::kResourceExhausted,
                    no_descriptors ? Reason::kQuotaArenas : Reason::kDeviceMemory,
                    absl::StrCat("making ", bytes, " bytes of shared memory"), error);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostMapping>> HostMapping::Map(UniqueFd memfd, uint64_t bytes,
                                                              Access access) {
  RETURN_IF_ERROR(CheckMemfd(memfd.get(), bytes));
  const int protection = access == Access::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const data = MapShared(bytes, protection, memfd.get());
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
  mapping->Place(static_cast<std::byte*>(data), bytes);
  // Clients' bytes belong neither into a core file of the daemon nor into what it forks.
  madvise(data, bytes, MADV_DONTDUMP);
  madvise(data, bytes, MADV_DONTFORK);
  return mapping;
}

absl::StatusOr<std::unique_ptr<HostMapping>> HostMapping::Create(uint64_t bytes) {
  UniqueFd memfd(memfd_create("ferry-job", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd.valid() || ftruncate(memfd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return MakingFailed(bytes, errno);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<HostMapping> made,
                   Map(std::move(memfd), bytes, Access::kReadWrite));
  made->unmade_ = bytes;
  return made;
}

absl::StatusOr<bool> HostMapping::MakePages() {
  const uint64_t some = std::min(unmade_, kPagesAtOnce);
  const uint64_t begin = bytes() - unmade_;
  if (some > 0 &&
      fallocate(memfd_.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(some)) != 0) {
    return MakingFailed(bytes(), errno);
  }
  madvise(data() + begin, some, MADV_POPULATE_READ);  // as in Populate
  unmade_ -= some;
  return unmade_ == 0;
}

void HostMapping::Populate() {
  struct stat file;
  constexpr uint64_t kBlock = 512;  // of st_blocks, whatever the file system's own
  if (fstat(memfd_.get(), &file) != 0 || static_cast<uint64_t>(file.st_blocks) * kBlock < bytes())
    return;
  madvise(data(), bytes(), MADV_POPULATE_READ);  // older kernels refuse, and then copies fault
}

HostMapping::~HostMapping() {
  Unregister();
  if (data() != nullptr) FERRY_CHECK(munmap(data(), bytes()) == 0);
}

}  // namespace ferry
