// SPDX-License-Identifier: Apache-2.0
// fork() for a process of several threads whose child allocates memory.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace ferry::testing {

// A few small allocations, which take the locks that those of a child would.
inline void AllocateALittle() {
  std::vector<void*> all;
  for (size_t size = 16; size <= 4096; size *= 2) {
    for (size_t i = 0; i < 64; ++i) all.push_back(malloc(size));
  }
  for (void* each : all) free(each);
}

// As fork(). AddressSanitizer of GCC 12 takes none of its locks before a fork. A lock that another
// thread holds at that moment stays held in the child for ever, and the child hangs when it
// allocates (1 in 300 beside threads that do nothing else). So with AddressSanitizer a child that
// cannot allocate is killed, and forked again. glibc's own allocator handles forks.
inline pid_t ForkToAllocate() {
#if defined(__SANITIZE_ADDRESS__)
  while (true) {
    int ready[2];
    if (pipe(ready) != 0) return -1;
    const pid_t child = fork();
    if (child == 0) {
      AllocateALittle();
      close(ready[0]);
      close(ready[1]);
      return 0;
    }
    close(ready[1]);
    pollfd closed = {ready[0], POLLIN, 0};
    const bool hangs = child > 0 && poll(&closed, 1, 2'000) == 0;
    close(ready[0]);
    if (!hangs) return child;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
#else
  return fork();
#endif
}

}  // namespace ferry::testing
