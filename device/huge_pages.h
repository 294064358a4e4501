// SPDX-License-Identifier: Apache-2.0
// Maps an arena where its huge pages can be mapped as such. Shared with the client library, so it
// uses nothing but the C library. Any thread.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace ferry {

inline constexpr size_t kHugePage = size_t{2} << 20;  // on x86-64, and on arm64 with 4 KiB pages

// As mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0), at a multiple of kHugePage if there is
// room. The kernel maps a huge page of a file only where address and offset agree, and by itself it
// looks for such an address only if tmpfs is told to use huge pages.
inline void* MapShared(size_t bytes, int protection, int fd) {
  void* at = nullptr;
  if (bytes >= kHugePage && bytes <= SIZE_MAX - kHugePage) {
    const size_t room = bytes + kHugePage;
    void* const found =
        mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found != MAP_FAILED) {
      const uintptr_t address = reinterpret_cast<uintptr_t>(found);
      at = reinterpret_cast<void*>((address + kHugePage - 1) / kHugePage * kHugePage);
      munmap(found, room);
    }
  }
  // Only a hint: another thread that has taken the place meanwhile keeps it.
  return mmap(at, bytes, protection, MAP_SHARED, fd, 0);
}

}  // namespace ferry
