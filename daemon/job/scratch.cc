// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/scratch.h"

#include <errno.h>
#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {

absl::StatusOr<absl::Span<std::byte>> Scratch::Get(uint64_t bytes) {
  home_.Check();
  if (bytes > bytes_) {
    Free();
    void* const mapped =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
      return ErrnoError(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
                        absl::StrCat("map ", bytes, " bytes for a job"), errno);
    }
    data_ = static_cast<std::byte*>(mapped);
    bytes_ = bytes;
  }
  return absl::Span<std::byte>(data_, bytes);
}

void Scratch::Shrink() {
  home_.Check();
  if (bytes_ > kKept) Free();
}

void Scratch::Free() {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace ferry
