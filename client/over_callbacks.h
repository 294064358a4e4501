// SPDX-License-Identifier: Apache-2.0
// Calls functions when 'over' counters reach values. One thread, made at first use, that sleeps on
// the session's event word while something is registered. Any thread may add; owned by the session.
// Invariant: every function is called exactly once, at the latest in Stop(), never under a lock.
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

  // `value` was posted. Called from here if it is reached already.
  void Add(uint32_t timeline, uint64_t value, Callback callback);
  // After Timelines::End(). Not from a callback.
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
