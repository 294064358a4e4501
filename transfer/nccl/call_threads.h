// SPDX-License-Identifier: Apache-2.0
// Threads for calls that may hang: each call has a thread of its own, so that no call waits for
// another. The destructor waits for all calls. Home: its owner's, which is CommTable.
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
  // Runs `call` on a thread of its own. `name`: at most 15 characters.
  void Run(std::string name, Task call);
  // Waits for all calls. False if they take longer than `patience`.
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
