// SPDX-License-Identifier: Apache-2.0
#include "base/executor.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace ferry {

absl::Time MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

SerialExecutor::SerialExecutor(std::string name)
    : home_(std::move(name)), thread_([this] { Run(); }) {}

SerialExecutor::~SerialExecutor() { Stop(); }

void SerialExecutor::SetAfterTasks(AfterTasks after_tasks) {
  RunAndWait([&] { after_tasks_ = std::move(after_tasks); });
}

void SerialExecutor::AwaitRoom() {
  while (queue_.size() >= kMostWaiting && !stopping_ && !home_.IsUnderWay()) drained_.wait(mutex_);
}

bool SerialExecutor::Push(Task task) {
  if (stopping_) return false;
  queue_.push_back(std::move(task));
  // The thread that runs tasks looks at the queue before it stops running.
  return !running_ && std::exchange(sleeping_, false);
}

void SerialExecutor::Post(Task task) {
  bool wake = false;
  {
    MutexLock lock(mutex_);
    wake = Push(std::move(task));
  }
  if (wake) wake_.notify_one();
}

void SerialExecutor::PostLong(Task task) {
  bool wake = false;
  {
    MutexLock lock(mutex_);
    AwaitRoom();
    wake = Push(std::move(task));
  }
  if (wake) wake_.notify_one();
}

void SerialExecutor::PostOrRun(Task task) {
  {
    MutexLock lock(mutex_);
    AwaitRoom();
    if (stopping_) return;
    if (running_ || !queue_.empty()) {
      queue_.push_back(std::move(task));
      return;  // the thread is awake, or the caller that runs tasks wakes it
    }
    running_ = true;
  }
  absl::Time next = absl::InfiniteFuture();
  {
    const AtHome at(home_);
    task();
    task = nullptr;
    if (after_tasks_) next = after_tasks_();
  }
  bool wake = false;
  {
    MutexLock lock(mutex_);
    running_ = false;
    // The thread handles what came meanwhile: tasks, an earlier timer, stopping.
    wake = (!queue_.empty() || stopping_ || next < wakes_at_) && std::exchange(sleeping_, false);
    next_ = next;
  }
  if (wake) wake_.notify_one();
}

void SerialExecutor::Stop() {
  FERRY_CHECK(!home_.IsUnderWay());
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    sleeping_ = false;
  }
  wake_.notify_all();
  drained_.notify_all();
  if (thread_.joinable()) thread_.join();
  home_.End();
}

void SerialExecutor::RunAndWait(Task task) {
  FERRY_CHECK(!home_.IsUnderWay());
  Mutex mutex;
  std::condition_variable_any done_cv;
  bool done = false;
  // The guard is destroyed with the task, whether it has run or a stopped executor drops it: then
  // the wait ends.
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
  const AtHome at(home_);
  pthread_setname_np(pthread_self(), home_.name().substr(0, 15).c_str());
  std::vector<Task> tasks;
  while (true) {
    {
      MutexLock lock(mutex_);
      while (running_ || (queue_.empty() && !stopping_)) {
        sleeping_ = true;
        if (running_ || next_ == absl::InfiniteFuture()) {
          wakes_at_ = absl::InfiniteFuture();
          wake_.wait(mutex_);
        } else {
          const absl::Duration left = next_ - MonotonicNow();
          if (left <= absl::ZeroDuration()) break;
          wakes_at_ = next_;
          // At most an hour: the clock plus a far `next_` would not fit chrono's nanoseconds.
          wake_.wait_for(mutex_, absl::ToChronoNanoseconds(std::min(left, absl::Hours(1))));
        }
      }
      sleeping_ = false;
      if (queue_.empty() && stopping_) return;
      running_ = true;
      tasks.swap(queue_);
    }
    if (tasks.size() >= kMostWaiting) drained_.notify_all();
    absl::Time since = tasks.size() > 1 ? MonotonicNow() : absl::InfiniteFuture();
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (i > 0 && after_tasks_ && MonotonicNow() - since >= kLongRun) {
        after_tasks_();  // for those who wait for what the tasks so far have caused, or for a timer
        since = MonotonicNow();
      }
      tasks[i]();
    }
    tasks.clear();
    const absl::Time next = after_tasks_ ? after_tasks_() : absl::InfiniteFuture();
    MutexLock lock(mutex_);
    running_ = false;
    next_ = next;
  }
}

}  // namespace ferry
