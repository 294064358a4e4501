// SPDX-License-Identifier: Apache-2.0
// What is known of the transfers of one life of the session: from one attach to the loss of that
// daemon, or to the session's end. Values and ids go on from life to life. So a batch asks its
// Life, however late, how a transfer ended whose daemon is gone. Any thread; shared by the
// connection and the batches of that life. Invariant: nothing changes once ended() is true. Of a
// reset that was under way then it is never known whether the daemon carried it out.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "client/codec.h"
#include "client/status.h"
#include "proto/ferry/v1/timeline_layout.h"

namespace ferry::client {

// The state of all 'over' counters at one moment.
using CounterLines = std::array<CounterLine, FERRY_TIMELINE_COUNTERS>;

// Stands for an 'over' counter with prepared transfers, which have none: they last until their
// batch ends.
inline constexpr uint32_t kPreparedTimeline = UINT32_MAX;

class Life {
 public:
  // `begin`: the counters at the attach. `prepared_from`: the value at which the words of prepared
  // batches begin in this life, in which their firings count from 1.
  explicit Life(const CounterLines& begin, uint64_t prepared_from = 0)
      : prepared_from_(prepared_from), begin_(begin) {}

  uint64_t prepared_from() const { return prepared_from_; }

  // True if `now`, the counter's line, suffices to know that all of [first, last] ended well.
  bool AllWell(uint32_t timeline, const CounterLine& now, uint64_t first, uint64_t last) const;
  // The daemon is asked to reset the failure fields of its counter. Until it has answered they say
  // nothing, and from then on nothing of values up to `up_to`, the last that was posted by then.
  void BeginReset(uint32_t timeline);
  void EndReset(uint32_t timeline, uint64_t up_to);
  // How many resets of the counter are over; 0 for a counter that there is not.
  uint64_t ResetsOver(uint32_t timeline) const;
  // A batch was posted whose last value is `last`; `resets_over` is from before that. If a reset
  // was under way meanwhile, failures of the batch may have been cleared: then the fields say
  // nothing of values up to `last`.
  void Posted(uint32_t timeline, uint64_t last, uint64_t resets_over);

  // The life is over. `end`: the counters as the daemon left them. Once.
  void End(StatusPtr cause, const CounterLines& end);
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Only after End(): how the transfer of `value` ended. If the daemon's counter had reached
  // `value`, it ended as the counter says; else it ended with the daemon.
  StatusPtr StatusAtEnd(uint64_t transfer, uint32_t timeline, uint64_t value) const;

 private:
  // The part of a line that is about values of this life. Under mutex_.
  CounterLine Own(uint32_t timeline, const CounterLine& line) const;
  // Whether the failure fields say nothing of this value. Under mutex_.
  bool IsForgotten(uint32_t timeline, uint64_t value) const {
    return resets_[timeline] != resets_over_[timeline] || value <= forgotten_[timeline];
  }

  const uint64_t prepared_from_;
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;  // guards what follows
  CounterLines begin_;
  std::array<uint64_t, FERRY_TIMELINE_COUNTERS> forgotten_{};
  std::array<uint64_t, FERRY_TIMELINE_COUNTERS> resets_{};  // that have begun
  std::array<uint64_t, FERRY_TIMELINE_COUNTERS> resets_over_{};
  CounterLines end_{};
  StatusPtr cause_;
};

}  // namespace ferry::client
