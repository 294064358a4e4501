// SPDX-License-Identifier: Apache-2.0
// Calls functions when 'over' counters reach values. Its one thread is made at first use, and
// sleeps on the session's event word while a function is registered. Any thread may add; owned by
// the session. Invariant: every function is called exactly once, at the latest in Stop(), never
// under a lock.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "client/timelines.h"

namespace ferry::client {

class OverCallbacks {
 public:
  struct Callback {
    void (*done)(void*);
    void* argument;
  };

  explicit OverCallbacks(Timelines* timelines) : timelines_(timelines) {}
  ~OverCallbacks() { Stop(); }

  // `value` must have been posted. If the counter has reached it, the function is called from here.
  void Add(uint32_t timeline, uint64_t value, Callback callback);
  // Calls every function that is left. After Timelines::End(); not from a callback.
  void Stop();

 private:
  void Run();
  std::vector<Callback> Due();  // under mutex_

  Timelines* const timelines_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::array<std::multimap<uint64_t, Callback>, FERRY_TIMELINE_COUNTERS> waiting_;
  size_t count_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace ferry::client
