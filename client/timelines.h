// SPDX-License-Identifier: Apache-2.0
// The session's counters: the shared pages (proto/ferry/v1/timeline_layout.h), waits for them, and
// the ending of what is outstanding when the daemon or the session ends. The pages stay the same
// memory over all lives of the daemon. Any thread; owned by the session and mapped until the
// session's last handle is freed. Invariant: from the return of End() until Begin() nothing sleeps
// here, and every value that was ever posted is reached.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "client/life.h"
#include "client/status.h"
#include "proto/ferry/v1/timeline_layout.h"

namespace ferry::client {

inline constexpr uint64_t kForever = UINT64_MAX;

// `timeout_ns` from now, as CLOCK_MONOTONIC in ns; kForever if `timeout_ns` is that or the sum does
// not fit.
uint64_t DeadlineAfter(uint64_t timeout_ns);
uint64_t NowNs();

class Timelines {
 public:
  enum class Wait { kReached, kTimeout, kEnded };

  Timelines() = default;
  ~Timelines();
  Timelines(const Timelines&) = delete;
  Timelines& operator=(const Timelines&) = delete;

  // Maps the daemon's memfd. Takes over the memfd and the doorbell (-1: there is none).
  StatusPtr Map(int memfd, int doorbell);
  // The memfd of Map(), to show to the daemon that goes on with it.
  int memfd() const { return memfd_; }

  bool mapped() const { return pages_ != nullptr; }
  // Keeps the pages mapped until the process ends, even when this object is destroyed.
  void StayMapped() { stays_mapped_ = true; }

  // 'defined' counters, the application's.
  void Define(uint32_t timeline, uint64_t value);
  uint64_t Defined(uint32_t timeline) const;

  // 'over' counters, the daemon's.
  CounterLine Over(uint32_t timeline) const;
  CounterLines Lines() const;
  // `deadline_ns`: as DeadlineAfter() gives it. kEnded: End() has come, and `value` was never
  // posted.
  Wait WaitOver(uint32_t timeline, uint64_t value, uint64_t deadline_ns);

  // The pages themselves, for a GPU that reads them and stores to them.
  ferry_timeline_pages& pages() { return *pages_; }
  size_t page_bytes() const { return bytes_; }

  // Prepared batches by number. A number is good in the life of the daemon that gave it out;
  // afterwards the line may be another batch's. Firings count from 1 in each life. The words do
  // not: they never go back, so that a stream that reaches its wait late is not left waiting.
  CounterLine Prepared(const Life& life, uint32_t number) const;
  // The word's value at firing `n`; FERRY_PREPARED_ENDED if the word never gets there.
  static uint64_t PreparedValue(const Life& life, uint64_t n);
  // To be called before a stream is told to store firing `n` or to wait for it: no later life's
  // words begin below that value. False if `life` has ended: the stream must not be told then.
  bool TellStream(const Life& life, uint64_t n);
  // The value where the words of the next life must begin. All lives so far must have ended.
  uint64_t prepared_from() const;
  // Stores that this end wants firing `n`. False if `life` has ended.
  bool Fire(const Life& life, uint32_t number, uint64_t n);
  // kEnded: the batch was released meanwhile, or `life` has ended.
  Wait WaitPrepared(const Life& life, uint32_t number, uint64_t n, uint64_t deadline_ns,
                    const std::atomic<bool>& released);
  // Number `number` was given out, and was given back. Between the two, End() ends the batch.
  void PreparedBegan(uint32_t number);
  void PreparedGone(uint32_t number);

  // Events() reads the event word. WaitEvents() sleeps until an 'over' counter has advanced since
  // `seen` was read, until End(), or until the deadline.
  uint32_t Events() const;
  void WaitEvents(uint32_t seen, uint64_t deadline_ns = kForever);

  // Values up to `last` belong to transfers of this session. Not between End() and Begin().
  void Posted(uint32_t timeline, uint64_t last);
  // The highest value that is posted or over.
  uint64_t posted(uint32_t timeline) const;

  // No transfer will reach `value`, because the session is over for good: it counts as posted and
  // failed, now or with End().
  void Fail(uint32_t timeline, uint64_t value);

  // Brings every counter to its last posted value, with what was missing counted as failed, and
  // wakes all that sleep. One thread. Does nothing if it has ended already.
  void End();
  // After End(): the counters from which the next daemon goes on. Repairs what the last daemon may
  // have written to them since.
  CounterLines Settle();
  // Between End() and Begin(): the daemon that was to go on with the pages is lost as well.
  void EndAttempt();
  // A daemon has gone on with the pages. Takes over its doorbell.
  void Begin(int doorbell);

 private:
  bool Ended() const { return turns_.load() % 2 != 0; }
  void Write(uint32_t timeline, const CounterLine& now);  // and wake who sleeps on it
  void FailPosted(uint32_t timeline);                     // under mutex_, once ended_ is set
  void EndPrepared(uint32_t number);                      // under mutex_
  bool NotePrepared(const Life& life, uint64_t n);        // under mutex_; as TellStream
  // Waits until `line` has reached `value`, until the deadline, or until `ended` says that it never
  // will.
  template <typename IsOver>
  Wait WaitFor(ferry_timeline_line& line, uint64_t value, uint64_t deadline_ns, IsOver ended);
  // Wakes the daemon's lanes to see what was stored before.
  void Ring();

  ferry_timeline_pages* pages_ = nullptr;
  size_t bytes_ = 0;
  bool stays_mapped_ = false;
  int memfd_ = -1;
  std::atomic<int> doorbell_{-1};
  std::atomic<uint64_t> turns_{0};     // counts every End() and every Begin(); odd: ended
  std::atomic<uint32_t> sleepers_{0};  // threads that may sleep on a word

  mutable std::mutex mutex_;  // guards what follows, and the lines' fields while ended
  std::array<uint64_t, FERRY_TIMELINE_COUNTERS> posted_{};
  CounterLines ended_{};  // the counters as End() made them
  // By number: how often it was given out and not yet seen to be given back. A number may be given
  // out again before its release is heard of here.
  std::array<uint8_t, FERRY_PREPARED_BATCHES> prepared_{};
  uint64_t prepared_from_ = 0;  // at least every value that was stored in their words or waited for
};

}  // namespace ferry::client
