// SPDX-License-Identifier: Apache-2.0
// Preloaded into a daemon (LD_PRELOAD): the wall clock it sees is the machine's plus the
// nanoseconds that FERRY_TEST_CLOCK, a file of 8 bytes, holds at that moment. So a test can step
// the clock of one process. Monotonic clocks are left alone, as a step leaves them alone.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace {

using ClockGettime = int (*)(clockid_t, timespec*);

int64_t Offset() {
  static const int64_t* const offset = [] {
    static const int64_t none = 0;
    const char* path = getenv("FERRY_TEST_CLOCK");
    const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return &none;
    void* page = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return page == MAP_FAILED ? &none : static_cast<const int64_t*>(page);
  }();
  return __atomic_load_n(offset, __ATOMIC_RELAXED);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const auto real = reinterpret_cast<ClockGettime>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, time);
  if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t now = int64_t{time->tv_sec} * kSecond + time->tv_nsec + Offset();
  time->tv_sec = static_cast<time_t>(now / kSecond);
  time->tv_nsec = static_cast<long>(now % kSecond);
  return 0;
}

int gettimeofday(timeval* out, void*) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *out = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* out) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}
}
