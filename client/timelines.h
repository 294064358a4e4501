// SPDX-License-Identifier: Apache-2.0
// The session's counters: the shared pages (proto/ferry/v1/timeline_layout.h), waiting on them, and
// ending what is outstanding when the session ends. Any thread; owned by the session and mapped
// until its last handle is freed. Invariant: once End() returned nothing sleeps here, and every
// value that was ever posted is reached.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "client/status.h"
#include "proto/ferry/v1/timeline_layout.h"

namespace ferry::client {

inline constexpr uint64_t kForever = UINT64_MAX;

// CLOCK_MONOTONIC in ns; kForever if `timeout_ns` is or does not fit.
uint64_t DeadlineAfter(uint64_t timeout_ns);
uint64_t NowNs();

class Timelines {
 public:
  // What a counter's line said at one moment.
  struct Line {
    uint64_t value = 0;
    uint64_t first_failed = 0;
    uint64_t failures = 0;
  };
  enum class Wait { kReached, kTimeout, kEnded };

  Timelines() = default;
  ~Timelines();
  Timelines(const Timelines&) = delete;
  Timelines& operator=(const Timelines&) = delete;

  // Maps the daemon's memfd (stays the caller's) and takes the doorbell over (-1: there is none).
  StatusPtr Map(int memfd, int doorbell);

  bool mapped() const { return pages_ != nullptr; }

  // 'defined' counters, the application's.
  void Define(uint32_t timeline, uint64_t value);
  uint64_t Defined(uint32_t timeline) const;

  // 'over' counters, the daemon's.
  Line Over(uint32_t timeline) const;
  // `deadline_ns` as of DeadlineAfter. kEnded: the session ended and `value` was never posted.
  Wait WaitOver(uint32_t timeline, uint64_t value, uint64_t deadline_ns);
  // Prepared batches, by number. The line as it is; of one that the session's end has ended, as
  // that has left it.
  Line Prepared(uint32_t number) const;
  // This end wants firing `n`.
  void Fire(uint32_t number, uint64_t n);
  // kEnded: it was released meanwhile.
  Wait WaitPrepared(uint32_t number, uint64_t n, uint64_t deadline_ns,
                    const std::atomic<bool>& released);
  // The number was given out, and was given back: between the two End() ends it.
  void PreparedBegan(uint32_t number);
  void PreparedGone(uint32_t number);

  // Sleeps until any 'over' counter advances after `seen` was read, or End().
  uint32_t Events() const;
  void WaitEvents(uint32_t seen);

  // Values up to `last` belong to transfers of this session.
  void Posted(uint32_t timeline, uint64_t last);
  // The session has ended: every posted value is reached now, the rest counted as failed, and
  // nobody sleeps on. Once.
  void End();
  bool ended() const { return ended_.load(); }
  // The line as the daemon left it; only after End().
  Line AtEnd(uint32_t timeline) const;

  // The daemon has reset the failure fields: of what is posted by now they say nothing any more.
  void ForgetFailures(uint32_t timeline);
  // What of the counter's values was forgotten: up to this one its failure fields say nothing.
  uint64_t Forgotten(uint32_t timeline) const;

 private:
  void EndCounter(uint32_t timeline);  // under mutex_
  void EndPrepared(uint32_t number);   // under mutex_
  // Until `line` has reached `value`, the deadline passes, or `ended` says that it never will.
  template <typename Ended>
  Wait WaitFor(ferry_timeline_line& line, uint64_t value, uint64_t deadline_ns, Ended ended);
  // The daemon's lanes see what was stored before.
  void Ring();

  ferry_timeline_pages* pages_ = nullptr;
  size_t bytes_ = 0;  // an older daemon's pages end before prepared batches
  int doorbell_ = -1;
  std::atomic<bool> ended_{false};
  std::atomic<uint32_t> sleepers_{0};

  mutable std::mutex mutex_;  // guards what follows, and the lines' fields once ended
  std::array<uint64_t, FERRY_TIMELINE_COUNTERS> posted_{};
  std::array<uint64_t, FERRY_TIMELINE_COUNTERS> forgotten_{};
  std::array<Line, FERRY_TIMELINE_COUNTERS> at_end_{};
  // How often a number was given out and not seen to be given back: it may be given out again
  // before its release is heard of here.
  std::array<uint8_t, FERRY_PREPARED_BATCHES> prepared_{};
};

}  // namespace ferry::client
