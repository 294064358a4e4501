// SPDX-License-Identifier: Apache-2.0
// Checks whether as many threads can be started as the caller is about to need. gRPC does not
// report it: without one of its threads its calls never end. Any thread. Used by the client library
// too, so it needs nothing but the C and C++ libraries.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cstddef>
#include <latch>
#include <vector>

namespace ferry {

// Threads that gRPC starts in a process of few calls, and some to spare.
inline constexpr size_t kGrpcThreads = 12;

// Address space that the C library reserves for a thread that allocates. Where address space is
// limited, gRPC's later threads find it used up by the earlier ones.
inline constexpr size_t kThreadHeap = size_t{64} << 20;

// 0 if `count` more threads can run and allocate at once; else the errno of the first that cannot.
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
      error = EAGAIN;  // the errno of a thread that cannot be started
    } else {
      munmap(heaps, count * kThreadHeap);
    }
  }
  over.count_down();
  for (size_t i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
  return error;
}

}  // namespace ferry
