// SPDX-License-Identifier: Apache-2.0
// The streams of this process that wait for a word, counted against the process's connections to
// the GPU: when as many streams wait as there are connections, no other stream of the process goes
// on. A stream counts from the queueing of a wait until the word is there. One a process; any
// thread. Invariant: no entry outlives its word.
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
  // Context, stream, and the thread's id if each thread has its own stream of that name (else 0).
  using Stream = std::tuple<const void*, const void*, uint64_t>;

  // One wait of a stream. `timeline` below 0: it waits for firing `value` of a prepared batch.
  struct Wait {
    Stream stream;
    const uint64_t* word = nullptr;
    uint64_t value = 0;
    std::weak_ptr<Session> session;
    int timeline = -1;
    uint64_t place = 0;  // in the order of NextPlace(); Enter() sets it
  };

  static ParkedStreams& Get();

  // Numbers what streams are told, a wait or a store, in the order in which they are told.
  uint64_t NextPlace() { return ++last_place_; }

  // Registers a wait. False: too many streams wait already, and the wait is not registered.
  bool Enter(Wait wait);
  // Takes back a wait that was not queued after all.
  void Leave(const Wait& wait);
  // The waits of `stream` that it was told of before `place` and that are not over.
  std::vector<Wait> Before(const Stream& stream, uint64_t place);
  // The waits of all streams for words in [begin, begin + bytes).
  std::vector<Wait> On(const void* begin, size_t bytes);
  // The words in [begin, begin + bytes) get another meaning, or none: their waits are dropped.
  void Forget(const void* begin, size_t bytes);
  // Words may begin anew after this: drops the waits that are over, which cannot be told later.
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
