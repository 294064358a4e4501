// SPDX-License-Identifier: Apache-2.0
#include "client/fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

namespace ferry::client {

// Never destroyed: a fork may happen while the process runs its exit handlers.
struct ForkList {
  std::mutex mutex;
  ForkFds* first = nullptr;
  std::atomic<uint64_t> generation{0};
  std::atomic<int64_t> grpc_generation{-1};  // generation of the process that uses gRPC

  static ForkList& Get() {
    static ForkList* list = [] {
      auto* made = new ForkList;
      pthread_atfork([] { Get().mutex.lock(); }, [] { Get().mutex.unlock(); },
                     [] { Get().InChild(); });
      return made;
    }();
    return *list;
  }

  void InChild() {
    generation.fetch_add(1, std::memory_order_relaxed);
    for (ForkFds* fds = first; fds != nullptr; fds = fds->next_) {
      for (int& fd : fds->fds_) {
        if (fd >= 0) close(fd);
        fd = -1;
      }
    }
    mutex.unlock();
  }
};

uint64_t ForkGeneration() { return ForkList::Get().generation.load(std::memory_order_relaxed); }

bool ClaimGrpc() {
  ForkList& list = ForkList::Get();
  const auto mine = static_cast<int64_t>(ForkGeneration());
  int64_t seen = -1;
  return list.grpc_generation.compare_exchange_strong(seen, mine) || seen == mine;
}

ForkFds::ForkFds() {
  ForkList& list = ForkList::Get();
  std::lock_guard lock(list.mutex);
  next_ = list.first;
  if (next_ != nullptr) next_->previous_ = this;
  list.first = this;
}

ForkFds::~ForkFds() {
  Close(kAttach);
  Close(kRpc);
  Close(kGrpc);
  ForkList& list = ForkList::Get();
  std::lock_guard lock(list.mutex);
  (previous_ != nullptr ? previous_->next_ : list.first) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

int ForkFds::Socket(Which which, int type) {
  std::lock_guard lock(ForkList::Get().mutex);
  return fds_[which] = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
}

int ForkFds::Duplicate(Which from, Which to) {
  std::lock_guard lock(ForkList::Get().mutex);
  return fds_[to] = fcntl(fds_[from], F_DUPFD_CLOEXEC, 0);
}

void ForkFds::Shutdown(Which which) {
  std::lock_guard lock(ForkList::Get().mutex);
  if (fds_[which] >= 0) shutdown(fds_[which], SHUT_RDWR);
}

void ForkFds::Close(Which which) {
  std::lock_guard lock(ForkList::Get().mutex);
  if (fds_[which] >= 0) close(fds_[which]);
  fds_[which] = -1;
}

void ForkFds::Forget(Which which) {
  std::lock_guard lock(ForkList::Get().mutex);
  fds_[which] = -1;
}

}  // namespace ferry::client
