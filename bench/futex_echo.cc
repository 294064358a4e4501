// SPDX-License-Identifier: Apache-2.0
#include "bench/futex_echo.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "base/fd.h"
#include "base/status.h"
#include "tools/ferryctl/bench_end.h"

namespace ferry::bench {
namespace {

constexpr size_t kPage = 4096;

void Set(std::atomic<uint32_t>& word, uint32_t value) {
  word.store(value);
  syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void AwaitOther(std::atomic<uint32_t>& word, uint32_t not_this) {
  while (word.load() == not_this) {
    syscall(SYS_futex, &word, FUTEX_WAIT, not_this, nullptr, nullptr, 0);
  }
}

}  // namespace

struct FutexEcho::Words {
  alignas(64) std::atomic<uint32_t> ask;
  alignas(64) std::atomic<uint32_t> answer;
};

int RunFutexEcho(int memfd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  void* const page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (page == MAP_FAILED) return 1;
  auto* words = static_cast<FutexEcho::Words*>(page);
  for (uint32_t seen = 0;;) {
    AwaitOther(words->ask, seen);
    seen = words->ask.load();
    Set(words->answer, seen);
  }
}

absl::StatusOr<FutexEcho> FutexEcho::Start(const std::string& self) {
  UniqueFd memfd(memfd_create("futex-echo", MFD_CLOEXEC));
  void* page = MAP_FAILED;
  if (memfd.valid() && ftruncate(memfd.get(), kPage) == 0) {
    page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  }
  if (page == MAP_FAILED) {
    return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal, "make a shared page", errno);
  }
  tools::SpawnOptions options;
  options.arguments = {self, "futex-echo"};
  options.fd = memfd.get();
  ASSIGN_OR_RETURN(tools::ChildProcess other, tools::ChildProcess::Spawn(options));
  return FutexEcho(std::move(other), static_cast<Words*>(page));
}

absl::Duration FutexEcho::RoundTrip() {
  const uint32_t next = words_->ask.load() + 1;
  const int64_t start = tools::MonotonicNanoseconds();
  Set(words_->ask, next);
  AwaitOther(words_->answer, next - 1);
  return absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
}

}  // namespace ferry::bench
