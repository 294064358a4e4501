// SPDX-License-Identifier: Apache-2.0
// Threads for calls that may hang: each call has its own, so that none of them waits for another.
// Made and used by one thread; the destructor waits for all of them.
#pragma once

#include <condition_variable>
#include <list>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/executor.h"
#include "base/mutex.h"

namespace ferry {

class CallThreads {
 public:
  ~CallThreads() { Join(absl::InfiniteDuration()); }
  // `name`: at most 15 characters.
  void Run(std::string name, Task call);
  // Waits for all that run. False if they take longer.
  bool Join(absl::Duration patience);

 private:
  struct Thread {
    std::thread thread;
    bool over = false;
  };
  Mutex mutex_;
  std::condition_variable_any ended_;
  std::list<Thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ferry
