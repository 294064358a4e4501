// SPDX-License-Identifier: Apache-2.0
#include "device/prepared_batch.h"

#include <unistd.h>

#include "base/check.h"
#include "device/futex.h"

namespace ferry {

PreparedBatch::PreparedBatch(ferry_timeline_pages& pages, const Doorbell& doorbell, uint32_t number,
                             uint32_t transfers, uint64_t from, std::atomic<uint64_t>& over)
    : over_line_(pages.prepared_over[number]),
      defined_word_(pages.prepared_defined[number].value),
      signals_(pages.signals),
      doorbell_(doorbell),
      transfers_(transfers),
      from_(from),
      left_(transfers),
      over_(over),
      last_(from) {
  FERRY_CHECK(number < FERRY_PREPARED_BATCHES && transfers > 0);
  over_.store(from, std::memory_order_seq_cst);
  __atomic_store_n(&over_line_.first_failed, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&over_line_.failures, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&over_line_.value, from, __ATOMIC_SEQ_CST);
  __atomic_store_n(&pages.prepared_defined[number].value, from, __ATOMIC_SEQ_CST);
}

void PreparedBatch::Arm() {
  // Lanes that have parked since they looked do not know.
  if (armed_.fetch_add(1, std::memory_order_seq_cst) + 1 == transfers_) Ring();
}

void PreparedBatch::Disarm() { armed_.fetch_sub(1, std::memory_order_seq_cst); }

bool PreparedBatch::Wants(uint64_t n) const {
  const uint64_t value = ValueOf(n);
  return armed() && __atomic_load_n(&defined_word_, __ATOMIC_SEQ_CST) >= value &&
         over_.load(std::memory_order_seq_cst) == value - 1;
}

bool PreparedBatch::Firing() const {
  home_.Check();
  return __atomic_load_n(&defined_word_, __ATOMIC_SEQ_CST) > over_.load(std::memory_order_seq_cst);
}

void PreparedBatch::Over(uint64_t n, uint32_t transfers) {
  if (left_.fetch_sub(transfers, std::memory_order_acq_rel) != transfers) return;
  left_.store(transfers_, std::memory_order_relaxed);
  const uint64_t value = ValueOf(n);
  uint64_t before = value - 1;
  if (!over_.compare_exchange_strong(before, value, std::memory_order_seq_cst)) return;
  Advance(value);
  // Whoever stored ahead has rung already, and lanes may have parked since.
  if (__atomic_load_n(&defined_word_, __ATOMIC_SEQ_CST) > value ||
      joined_.load(std::memory_order_seq_cst)) {
    Ring();
  }
}

void PreparedBatch::Define(uint64_t n) {
  // Never back: in its page the client may have stored whatever it likes.
  uint64_t seen = __atomic_load_n(&defined_word_, __ATOMIC_RELAXED);
  const uint64_t value = ValueOf(n);
  while (seen < value && !__atomic_compare_exchange_n(&defined_word_, &seen, value, /*weak=*/true,
                                                      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  Ring();
}

bool PreparedBatch::IsOver(uint64_t n) const {
  const uint64_t over = over_.load(std::memory_order_seq_cst);
  return over != FERRY_PREPARED_ENDED && over >= ValueOf(n);
}

DefinedWord PreparedBatch::defined() const {
  return {&defined_word_, doorbell_.parked, doorbell_.fd, false, &over_, doorbell_.own};
}

void PreparedBatch::End() {
  home_.Check();
  const uint64_t over = over_.exchange(FERRY_PREPARED_ENDED, std::memory_order_seq_cst);
  FERRY_CHECK(over != FERRY_PREPARED_ENDED);
  last_.store(over, std::memory_order_relaxed);
  __atomic_store_n(&over_line_.first_failed, over + 1, __ATOMIC_RELAXED);
  __atomic_store_n(&over_line_.failures, 1, __ATOMIC_RELAXED);
  Advance(FERRY_PREPARED_ENDED);
}

uint64_t PreparedBatch::firings() const {
  const uint64_t over = over_.load(std::memory_order_relaxed);
  return (over == FERRY_PREPARED_ENDED ? last_.load(std::memory_order_relaxed) : over) - from_;
}

void PreparedBatch::Advance(uint64_t value) {
  // Never back: a lane may be here with its last firing while control ends the batch.
  uint64_t seen = __atomic_load_n(&over_line_.value, __ATOMIC_RELAXED);
  while (seen < value && !__atomic_compare_exchange_n(&over_line_.value, &seen, value, false,
                                                      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  FutexWakeIf(over_line_.waiters, over_line_.value);
  __atomic_fetch_add(&signals_.events, 1, __ATOMIC_SEQ_CST);
  FutexWakeIf(signals_.event_waiters, signals_.events);
}

void PreparedBatch::Ring() const { RingDoorbell(doorbell_.own); }

}  // namespace ferry
