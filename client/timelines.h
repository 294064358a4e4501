// SPDX-License-Identifier: Apache-2.0
// The session's counters: the shared pages (proto/ferry/v1/timeline_layout.h), waiting on them, and
// ending what is outstanding when the daemon or the session ends. The pages stay the same memory
// over every life of the daemon. Any thread; owned by the session and mapped until its last handle
// is freed. Invariant: once End() returned nothing sleeps here, and every value that was ever
// posted is reached; until Begin() nothing sleeps either.
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

// CLOCK_MONOTONIC in ns; kForever if `timeout_ns` is or does not fit.
uint64_t DeadlineAfter(uint64_t timeout_ns);
uint64_t NowNs();

class Timelines {
 public:
  enum class Wait { kReached, kTimeout, kEnded };

  Timelines() = default;
  ~Timelines();
  Timelines(const Timelines&) = delete;
  Timelines& operator=(const Timelines&) = delete;

  // Maps the daemon's memfd. Takes it and the doorbell (-1: there is none) over.
  StatusPtr Map(int memfd, int doorbell);
  // That of Map(), for the daemon that goes on with it.
  int memfd() const { return memfd_; }

  bool mapped() const { return pages_ != nullptr; }
  // Until the process ends, whatever becomes of this.
  void StayMapped() { stays_mapped_ = true; }

  // 'defined' counters, the application's.
  void Define(uint32_t timeline, uint64_t value);
  uint64_t Defined(uint32_t timeline) const;

  // 'over' counters, the daemon's.
  CounterLine Over(uint32_t timeline) const;
  CounterLines Lines() const;
  // `deadline_ns` as of DeadlineAfter. kEnded: End() came, or was before, and `value` was never
  // posted.
  Wait WaitOver(uint32_t timeline, uint64_t value, uint64_t deadline_ns);

  // The pages themselves, for a GPU that looks at them and stores to them; by index, in bounds.
  ferry_timeline_pages& pages() { return *pages_; }
  size_t page_bytes() const { return bytes_; }

  // Prepared batches, by number, which is good in the life of the daemon that gave it out: what a
  // line says afterwards may be another batch's. Firings count from 1 in each life; the words do
  // not, so that a stream that reaches its wait late finds no word that has gone back.
  CounterLine Prepared(const Life& life, uint32_t number) const;
  // What the words are at firing `n`; FERRY_PREPARED_ENDED if they never get there.
  static uint64_t PreparedValue(const Life& life, uint64_t n);
  // A stream is about to be told to store firing `n`, or to wait for it: no later life's words
  // begin below that. False if `life` has ended: then it must not be.
  bool TellStream(const Life& life, uint64_t n);
  // Where the words of the next life must begin, all lives so far having ended.
  uint64_t prepared_from() const;
  // This end wants firing `n`. False if `life` has ended.
  bool Fire(const Life& life, uint32_t number, uint64_t n);
  // kEnded: it was released meanwhile, or `life` has ended.
  Wait WaitPrepared(const Life& life, uint32_t number, uint64_t n, uint64_t deadline_ns,
                    const std::atomic<bool>& released);
  // The number was given out, and was given back: between the two End() ends it.
  void PreparedBegan(uint32_t number);
  void PreparedGone(uint32_t number);

  // Sleeps until any 'over' counter advances after `seen` was read, or End(), or the deadline.
  uint32_t Events() const;
  void WaitEvents(uint32_t seen, uint64_t deadline_ns = kForever);

  // Values up to `last` belong to transfers of this session. Not between End() and Begin().
  void Posted(uint32_t timeline, uint64_t last);
  // All values up to this one are posted or over.
  uint64_t posted(uint32_t timeline) const;

  // `value` will not be reached by any transfer, as the session is over for good: it counts as a
  // failed one's, now or with End().
  void Fail(uint32_t timeline, uint64_t value);

  // Every posted value is reached now, the rest counted as failed, and nobody sleeps on. One
  // thread; nothing if it has ended already.
  void End();
  // After End(): how the counters stand, which is what the next daemon goes on from. Repairs what
  // the last one may have written meanwhile.
  CounterLines Settle();
  // Between End() and Begin(): the daemon that was to go on with the pages is gone as well.
  void EndAttempt();
  // A daemon has gone on with the pages: the end is over. Takes its doorbell.
  void Begin(int doorbell);

 private:
  bool Ended() const { return turns_.load() % 2 != 0; }
  void Write(uint32_t timeline, const CounterLine& now);  // and wake
  void FailPosted(uint32_t timeline);                     // under mutex_, after ended_ is known
  void EndPrepared(uint32_t number);                      // under mutex_
  bool NotePrepared(const Life& life, uint64_t n);        // under mutex_; as TellStream
  // Until `line` has reached `value`, the deadline passes, or `ended` says that it never will.
  template <typename IsOver>
  Wait WaitFor(ferry_timeline_line& line, uint64_t value, uint64_t deadline_ns, IsOver ended);
  // The daemon's lanes see what was stored before.
  void Ring();

  ferry_timeline_pages* pages_ = nullptr;
  size_t bytes_ = 0;  // an older daemon's pages end before prepared batches
  bool stays_mapped_ = false;
  int memfd_ = -1;
  std::atomic<int> doorbell_{-1};
  std::atomic<uint64_t> turns_{0};  // one with every End() and with every Begin()
  std::atomic<uint32_t> sleepers_{0};

  mutable std::mutex mutex_;  // guards what follows, and the lines' fields while ended
  std::array<uint64_t, FERRY_TIMELINE_COUNTERS> posted_{};
  CounterLines ended_{};  // as End() made them
  // How often a number was given out and not seen to be given back: it may be given out again
  // before its release is heard of here.
  std::array<uint8_t, FERRY_PREPARED_BATCHES> prepared_{};
  uint64_t prepared_from_ = 0;  // not below what anybody stores in their words, or waits for
};

}  // namespace ferry::client
