// SPDX-License-Identifier: Apache-2.0
// Where an arena is mapped so that its huge pages are mapped as such: shared with the client, thus
// nothing but the C library. Any thread.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace ferry {

inline constexpr size_t kHugePage = size_t{2} << 20;  // of x86-64, and of arm64 with 4 KiB pages

// As mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0), from a multiple of kHugePage on if there
// is room: the kernel maps a huge page of a file only where address and offset agree, and by itself
// looks for such a place only where tmpfs is told to use huge pages.
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
  // A wish: who takes the place meanwhile keeps it.
  return mmap(at, bytes, protection, MAP_SHARED, fd, 0);
}

}  // namespace ferry
