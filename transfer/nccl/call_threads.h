// SPDX-License-Identifier: Apache-2.0
// Threads for calls that may hang: each call has its own, so that none of them waits for another.
// Made and used by one thread; the destructor waits for all of them.
#pragma once

#include <atomic>
#include <list>
#include <string>
#include <thread>

#include "base/executor.h"

namespace ferry {

class CallThreads {
 public:
  ~CallThreads() { Join(); }
  // `name`: at most 15 characters.
  void Run(std::string name, Task call);
  void Join();

 private:
  struct Thread {
    std::thread thread;
    std::atomic<bool> over{false};
  };
  std::list<Thread> threads_;
};

}  // namespace ferry
