// SPDX-License-Identifier: Apache-2.0
#include "bench/futex_echo.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <optional>

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

// Keeps the calling thread on the first or on the last core that it may use.
class OnCore {
 public:
  explicit OnCore(bool last) {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &before_)) continue;
      if (last) CPU_ZERO(&one);
      CPU_SET(core, &one);
      if (!last) break;
    }
    sched_setaffinity(0, sizeof(one), &one);
  }
  ~OnCore() { sched_setaffinity(0, sizeof(before_), &before_); }

 private:
  cpu_set_t before_;
};

}  // namespace

struct FutexEcho::Words {
  struct Line {
    alignas(64) std::atomic<uint32_t> ask;
    alignas(64) std::atomic<uint32_t> answer;
    // Asks, and waits for the answer.
    void Ask(uint32_t number) {
      Set(ask, number);
      AwaitOther(answer, number - 1);
    }
  };
  Line near;
  Line far;  // behind a third process
};

int RunFutexEcho(int memfd, const std::string& role) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::optional<OnCore> pinned;
  if (role == "apart") pinned.emplace(/*last=*/true);
  void* const page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (page == MAP_FAILED) return 1;
  auto* words = static_cast<FutexEcho::Words*>(page);
  FutexEcho::Words::Line& line = role == "far" ? words->far : words->near;
  for (uint32_t seen = 0;;) {
    AwaitOther(line.ask, seen);
    seen = line.ask.load();
    if (role == "third") words->far.Ask(seen);
    Set(line.answer, seen);
  }
}

absl::StatusOr<FutexEcho> FutexEcho::Start(const std::string& self, FutexRoad road) {
  UniqueFd memfd(memfd_create("futex-echo", MFD_CLOEXEC));
  void* page = MAP_FAILED;
  if (memfd.valid() && ftruncate(memfd.get(), kPage) == 0) {
    page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  }
  if (page == MAP_FAILED) {
    return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal, "make a shared page", errno);
  }
  std::vector<std::string> roles = {"near"};
  if (road == FutexRoad::kTwoCores) roles = {"apart"};
  if (road == FutexRoad::kThroughThird) roles = {"third", "far"};
  std::vector<tools::ChildProcess> others;
  for (const std::string& role : roles) {
    tools::SpawnOptions options;
    options.arguments = {self, "futex-echo", role};
    options.fd = memfd.get();
    ASSIGN_OR_RETURN(tools::ChildProcess other, tools::ChildProcess::Spawn(options));
    others.push_back(std::move(other));
  }
  return FutexEcho(std::move(others), static_cast<Words*>(page), road);
}

absl::Duration FutexEcho::RoundTrip() {
  std::optional<OnCore> pinned;
  if (road_ == FutexRoad::kTwoCores) pinned.emplace(/*last=*/false);
  const uint32_t next = words_->near.ask.load() + 1;
  const int64_t start = tools::MonotonicNanoseconds();
  words_->near.Ask(next);
  return absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
}

}  // namespace ferry::bench
