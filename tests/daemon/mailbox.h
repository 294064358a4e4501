// SPDX-License-Identifier: Apache-2.0
// A queue that other threads fill and the test waits for. Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <optional>
#include <utility>

#include "base/mutex.h"

namespace ferry::testing {

template <typename T>
class Mailbox {
 public:
  void Put(T item) {
    MutexLock lock(mutex_);
    items_.push_back(std::move(item));
    changed_.notify_all();
  }
  // The next item; nothing if none comes within a time that only a hang explains.
  std::optional<T> Take() {
    MutexLock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (items_.empty()) {
      if (changed_.wait_until(mutex_, deadline) == std::cv_status::timeout) return std::nullopt;
    }
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }
  size_t size() {
    MutexLock lock(mutex_);
    return items_.size();
  }

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ferry::testing
