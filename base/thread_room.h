// SPDX-License-Identifier: Apache-2.0
// Whether as many threads can be started as somebody is about to need. gRPC does not say so:
// without one of its threads its calls never end. Any thread. For the client library too: nothing
// but the C and C++ libraries.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cstddef>
#include <latch>
#include <vector>

namespace ferry {

// What gRPC starts in a process whose calls are few, and some more.
inline constexpr size_t kGrpcThreads = 12;

// Of address space, what the C library reserves for a thread that allocates: where there is a limit
// to it, gRPC's later threads otherwise find it used up by the earlier ones.
inline constexpr size_t kThreadHeap = size_t{64} << 20;

// 0, or the errno of one of `count` threads that cannot run and allocate at once beside those that
// are there.
inline int RoomForThreads(size_t count) {
  std::latch over(1);
  std::vector<pthread_t> threads(count);
  size_t started = 0;
  int error = 0;
  while (error == 0 && started < count) {
    error = pthread_create(
        &threads[started], nullptr,
        [](void* latch) -> void* {
          static_cast<std::latch*>(latch)->wait();
          return nullptr;
        },
        &over);
    if (error == 0) ++started;
  }
  if (error == 0) {
    void* const heaps = mmap(nullptr, count * kThreadHeap, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (heaps == MAP_FAILED) {
      error = EAGAIN;  // as of a thread
    } else {
      munmap(heaps, count * kThreadHeap);
    }
  }
  over.count_down();
  for (size_t i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
  return error;
}

}  // namespace ferry
