// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/call_threads.h"

#include <pthread.h>

#include <utility>

namespace ferry {

void CallThreads::Run(std::string name, Task call) {
  for (auto it = threads_.begin(); it != threads_.end();) {
    if (!it->over) {
      ++it;
      continue;
    }
    it->thread.join();
    it = threads_.erase(it);
  }
  Thread& made = threads_.emplace_back();
  made.thread = std::thread([&made, name = std::move(name), call = std::move(call)]() mutable {
    pthread_setname_np(pthread_self(), name.c_str());
    call();
    call = nullptr;
    made.over = true;
  });
}

void CallThreads::Join() {
  for (Thread& thread : threads_) thread.thread.join();
  threads_.clear();
}

}  // namespace ferry
