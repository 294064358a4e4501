// SPDX-License-Identifier: Apache-2.0
#include "base/executor.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace ferry {
namespace {
thread_local const SerialExecutor* current_executor = nullptr;
}  // namespace

absl::Time MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

SerialExecutor::SerialExecutor(std::string name)
    : name_(std::move(name)), thread_([this] { Run(); }) {}

SerialExecutor::~SerialExecutor() { Stop(); }

void SerialExecutor::SetAfterBatch(AfterBatch after_batch) {
  RunAndWait([&] { after_batch_ = std::move(after_batch); });
}

void SerialExecutor::Post(Task task) {
  bool wake = false;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(task));
    wake = std::exchange(sleeping_, false);
  }
  if (wake) wake_.notify_one();
}

bool SerialExecutor::IsCurrent() const { return current_executor == this; }

void SerialExecutor::Stop() {
  FERRY_CHECK(!IsCurrent());
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    sleeping_ = false;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SerialExecutor::RunAndWait(Task task) {
  FERRY_CHECK(!IsCurrent());
  Mutex mutex;
  std::condition_variable_any done_cv;
  bool done = false;
  // Whether the task runs or a stopped executor drops it, the guard goes with it: the wait ends.
  struct Guard {
    Mutex* mutex = nullptr;
    std::condition_variable_any* done_cv = nullptr;
    bool* done = nullptr;
    Guard(Mutex* m, std::condition_variable_any* cv, bool* d) : mutex(m), done_cv(cv), done(d) {}
    Guard(Guard&& other) noexcept
        : mutex(std::exchange(other.mutex, nullptr)), done_cv(other.done_cv), done(other.done) {}
    ~Guard() {
      if (mutex == nullptr) return;
      MutexLock lock(*mutex);
      *done = true;
      done_cv->notify_one();
    }
  };
  Post([&task, guard = Guard(&mutex, &done_cv, &done)] { task(); });
  MutexLock lock(mutex);
  while (!done) done_cv.wait(mutex);
}

void SerialExecutor::Run() {
  current_executor = this;
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  std::vector<Task> batch;
  absl::Time next = absl::InfiniteFuture();
  while (true) {
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) {
        sleeping_ = true;
        if (next == absl::InfiniteFuture()) {
          wake_.wait(mutex_);
        } else {
          const absl::Duration left = next - MonotonicNow();
          if (left <= absl::ZeroDuration()) break;
          // Not longer: the clock added to a far `next` would not fit chrono's nanoseconds.
          wake_.wait_for(mutex_, absl::ToChronoNanoseconds(std::min(left, absl::Hours(1))));
        }
      }
      sleeping_ = false;
      if (queue_.empty() && stopping_) return;
      batch.swap(queue_);
    }
    for (Task& task : batch) task();
    batch.clear();
    if (after_batch_) next = after_batch_();
  }
}

}  // namespace ferry
