// SPDX-License-Identifier: Apache-2.0
// Waking who sleeps on a word of shared memory. Any thread.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <climits>
#include <cstdint>

namespace ferry {

// Wakes all that sleep on `word`, if `waiters` says that somebody does. The word was stored
// sequentially consistent, as the look here is: either the waiter sees the value or we see the
// waiter.
inline void FutexWakeIf(const uint32_t& waiters, uint32_t& word) {
  if (__atomic_load_n(&waiters, __ATOMIC_SEQ_CST) == 0) return;
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// The same for a counter: futexes know its low 32 bits.
inline void FutexWakeIf(const uint32_t& waiters, uint64_t& word) {
  FutexWakeIf(waiters, reinterpret_cast<uint32_t*>(&word)[std::endian::native == std::endian::big]);
}

// Wakes the lanes that listen to an eventfd. It must be this process's own, which no other has: of
// a shared one another process can clear O_NONBLOCK and fill the counter, and the write waits for
// ever.
inline void RingDoorbell(int fd) {
  const uint64_t one = 1;
  // Fails only if the counter is full, which is readable too.
  [[maybe_unused]] const ssize_t ignored = write(fd, &one, sizeof(one));
}

}  // namespace ferry
