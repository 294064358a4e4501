// SPDX-License-Identifier: Apache-2.0
// What is known of the transfers of one life of the session: from one attach to the loss of that
// daemon, or to the session's end. Values and ids go on from life to life, so it is here that a
// batch learns, however late it asks, how a transfer ended whose daemon is gone. Any thread; shared
// by the connection and the batches of that life. Invariant: nothing changes once ended().
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

// All 'over' counters at one moment.
using CounterLines = std::array<CounterLine, FERRY_TIMELINE_COUNTERS>;

// Stands for the counter that prepared transfers do not have: they last until their batch ends.
inline constexpr uint32_t kPreparedTimeline = UINT32_MAX;

class Life {
 public:
  // `begin`: how the counters stood at the attach. `prepared_from`: where the words of prepared
  // batches begin, whose firings count from 1 in each life.
  explicit Life(const CounterLines& begin, uint64_t prepared_from = 0)
      : prepared_from_(prepared_from), begin_(begin) {}

  uint64_t prepared_from() const { return prepared_from_; }

  // True if what the counter's line says now is enough to know that [first, last] went well.
  bool AllWell(uint32_t timeline, const CounterLine& now, uint64_t first, uint64_t last) const;
  // The daemon has reset the failure fields: of the values up to this one they say nothing now.
  void ForgetFailures(uint32_t timeline, uint64_t up_to);

  // `end`: the counters as the daemon left them. Once.
  void End(StatusPtr cause, const CounterLines& end);
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Only after End(): how the transfer of `value` ended. What the daemon had told before counts as
  // told, the rest ended with it.
  StatusPtr StatusAtEnd(uint64_t transfer, uint32_t timeline, uint64_t value) const;

 private:
  // What of a line is this life's. Under mutex_.
  CounterLine Own(uint32_t timeline, const CounterLine& line) const;

  const uint64_t prepared_from_;
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;  // guards what follows
  CounterLines begin_;
  std::array<uint64_t, FERRY_TIMELINE_COUNTERS> forgotten_{};
  CounterLines end_{};
  StatusPtr cause_;
};

}  // namespace ferry::client
