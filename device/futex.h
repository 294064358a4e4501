// SPDX-License-Identifier: Apache-2.0
// Waking threads that sleep on a word of shared memory. Any thread.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <climits>
#include <cstdint>

namespace ferry {

// Wakes all threads that sleep on `word`, if `waiters` says that there are any. The caller has
// stored the word sequentially consistent, as `waiters` is read here: so either the waiter sees the
// value, or the waiter is seen here.
inline void FutexWakeIf(const uint32_t& waiters, uint32_t& word) {
  if (__atomic_load_n(&waiters, __ATOMIC_SEQ_CST) == 0) return;
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// The same for a counter of 64 bits: futexes know its low 32 bits.
inline void FutexWakeIf(const uint32_t& waiters, uint64_t& word) {
  FutexWakeIf(waiters, reinterpret_cast<uint32_t*>(&word)[std::endian::native == std::endian::big]);
}

// Wakes the lanes that listen to an eventfd. The eventfd must be this process's alone. If it were
// shared, another process could clear O_NONBLOCK and fill the counter, and the write would wait for
// ever.
inline void RingDoorbell(int fd) {
  const uint64_t one = 1;
  // Fails only if the counter is full; then it is readable anyway.
  [[maybe_unused]] const ssize_t ignored = write(fd, &one, sizeof(one));
}

}  // namespace ferry
