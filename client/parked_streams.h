// SPDX-License-Identifier: Apache-2.0
// The streams of this process that wait for a word, counted against its connections to the GPU: as
// many as connections stop every other stream of it. A stream counts from the queueing of a wait
// until the word is there. One a process; any thread. Invariant: no entry outlives its word.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "client/include/ferry/ferry_cuda.h"

namespace ferry::client {

class Session;

class ParkedStreams {
 public:
  // Context, stream, and whose it is if each thread has its own of that name (else 0).
  using Stream = std::tuple<const void*, const void*, uint64_t>;

  // What is waited for. `timeline` below 0: firing `value` of a prepared batch.
  struct Wait {
    Stream stream;
    const uint64_t* word = nullptr;
    uint64_t value = 0;
    std::weak_ptr<Session> session;
    int timeline = -1;
    uint64_t place = 0;  // in the order in which streams were told things; Enter() gives it
  };

  static ParkedStreams& Get();

  // The next place in the order in which streams are told to wait and to store.
  uint64_t NextPlace() { return ++last_place_; }

  // False: too many wait already.
  bool Enter(Wait wait);
  // It was not queued after all.
  void Leave(const Wait& wait);
  // What `stream` was told to wait for before `place`, and has not got.
  std::vector<Wait> Before(const Stream& stream, uint64_t place);
  // What streams wait for of the words from `begin` on, `bytes` long.
  std::vector<Wait> On(const void* begin, size_t bytes);
  // Words from `begin` on, `bytes` long, mean something else from here on, or nothing.
  void Forget(const void* begin, size_t bytes);
  // Words may begin anew from here on: who got what it waited for is known now or never.
  void ForgetReached();

  void CountHostWait() { ++host_waits_; }
  void CountWouldDeadlock() { ++would_deadlock_; }
  ferry_stream_counts Counts();

 private:
  ParkedStreams();
  void Sweep();            // under mutex_
  size_t Streams() const;  // under mutex_, after Sweep()

  uint32_t connections_;
  std::atomic<uint64_t> last_place_{0};
  std::atomic<uint64_t> stream_waits_{0};
  std::atomic<uint64_t> host_waits_{0};
  std::atomic<uint64_t> would_deadlock_{0};

  std::mutex mutex_;  // guards what follows
  std::vector<Wait> waits_;
};

}  // namespace ferry::client
