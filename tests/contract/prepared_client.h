// SPDX-License-Identifier: Apache-2.0
// A client's end of prepared batches, in a test without a daemon. One thread.
#pragma once

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "device/prepared_batch.h"
#include "device/timeline.h"

namespace ferry {

// Does with a session's prepared words what libferry does.
class PreparedClient {
 public:
  PreparedClient() {
    auto pages = TimelinePages::Create();
    EXPECT_TRUE(pages.ok()) << pages.status();
    pages_ = *std::move(pages);
    raw_ = static_cast<ferry_timeline_pages*>(const_cast<void*>(pages_->begin()));
  }
  PreparedBatch& Prepare(uint32_t transfers) {
    batches_.push_back(pages_->Prepare(static_cast<uint32_t>(batches_.size()), transfers));
    return *batches_.back();
  }
  void Fire(uint32_t number, uint64_t n) {
    __atomic_store_n(&raw_->prepared_defined[number].value, n, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&raw_->signals.lane_parked, __ATOMIC_SEQ_CST) != 0) {
      eventfd_write(pages_->doorbell(), 1);
    }
  }
  ferry_timeline_line& over(uint32_t number) { return raw_->prepared_over[number]; }
  uint64_t Over(uint32_t number) { return __atomic_load_n(&over(number).value, __ATOMIC_SEQ_CST); }
  void AwaitOver(uint32_t number, uint64_t n) {
    ferry_timeline_line& line = over(number);
    __atomic_fetch_add(&line.waiters, 1, __ATOMIC_SEQ_CST);
    for (uint64_t now; (now = Over(number)) < n;) {
      syscall(SYS_futex, &line.value, FUTEX_WAIT, static_cast<uint32_t>(now), nullptr, nullptr, 0);
    }
    __atomic_fetch_sub(&line.waiters, 1, __ATOMIC_SEQ_CST);
  }
  // Waits until this many lanes sleep and hear the doorbell.
  void AwaitParked(uint32_t lanes) {
    while (__atomic_load_n(&raw_->signals.lane_parked, __ATOMIC_SEQ_CST) != lanes) sched_yield();
  }

 private:
  std::unique_ptr<TimelinePages> pages_;
  ferry_timeline_pages* raw_ = nullptr;
  std::vector<std::unique_ptr<PreparedBatch>> batches_;
};

}  // namespace ferry
