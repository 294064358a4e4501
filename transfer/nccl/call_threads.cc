// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/call_threads.h"

#include <pthread.h>

#include <utility>

namespace ferry {

void CallThreads::Run(std::string name, Task call) {
  Join(absl::ZeroDuration());  // of those that are over
  MutexLock lock(mutex_);
  Thread& made = threads_.emplace_back();
  made.thread =
      std::thread([this, &made, name = std::move(name), call = std::move(call)]() mutable {
        pthread_setname_np(pthread_self(), name.c_str());
        call();
        call = nullptr;
        MutexLock lock(mutex_);
        made.over = true;
        ended_.notify_all();
      });
}

bool CallThreads::Join(absl::Duration patience) {
  const absl::Time until = MonotonicNow() + patience;
  MutexLock lock(mutex_);
  while (true) {
    for (auto it = threads_.begin(); it != threads_.end();) {
      const auto here = it++;
      if (!here->over) continue;
      here->thread.join();  // it has let go of the lock, and does nothing else
      threads_.erase(here);
    }
    if (threads_.empty()) return true;
    if (patience == absl::InfiniteDuration()) {
      ended_.wait(mutex_);
      continue;
    }
    const absl::Duration left = until - MonotonicNow();
    if (left <= absl::ZeroDuration()) return false;
    ended_.wait_for(mutex_, absl::ToChronoNanoseconds(left));
  }
}

}  // namespace ferry
