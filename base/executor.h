// SPDX-License-Identifier: Apache-2.0
// An Executor runs tasks one at a time, in the order they were posted, and tells the time. It is
// what a class's "home" is: state that lives on one executor needs no lock. Posting is allowed from
// any thread and never runs the task inline.
#pragma once

#include <condition_variable>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace ferry {

using Task = absl::AnyInvocable<void()>;

class Executor {
 public:
  virtual ~Executor() = default;
  virtual void Post(Task task) = 0;
  // As Post, but may run the task here and now if the executor is idle, which saves a thread its
  // wake-up. If too many tasks wait it waits until they have run, so that what comes from outside
  // faster than it is dealt with stays outside. For callers that hold no lock and can be kept a
  // moment.
  virtual void PostOrRun(Task task) { Post(std::move(task)); }
  // As PostOrRun, of a task that takes long: it is left to the executor, and the caller goes on to
  // what comes next meanwhile.
  virtual void PostLong(Task task) { Post(std::move(task)); }
  // Monotonic, as an absl::Time whose origin means nothing.
  virtual absl::Time Now() = 0;
  virtual bool IsCurrent() const = 0;
};

// Monotonic time in absl's type, so that a changed wall clock moves no deadline.
absl::Time MonotonicNow();

// A thread of its own, and whoever calls PostOrRun while that thread has nothing to do: tasks still
// run one at a time, in order, and see what the ones before them did. `after_batch` runs after each
// run of tasks, before the thread waits again, and during one each time it has lasted for
// kLongBatch; it returns when it wants to run next at the latest (absl::InfiniteFuture(): only
// after tasks), and is where timers and the flushing of what tasks collected live.
class SerialExecutor : public Executor {
 public:
  using AfterBatch = absl::AnyInvocable<absl::Time()>;
  // So many waiting tasks make PostOrRun and PostLong wait.
  static constexpr size_t kMostWaiting = 1024;
  static constexpr absl::Duration kLongBatch = absl::Milliseconds(5);

  explicit SerialExecutor(std::string name);
  // Runs what was posted before, then joins.
  ~SerialExecutor() override;

  // Before the first Post.
  void SetAfterBatch(AfterBatch after_batch);
  void Post(Task task) override;
  void PostOrRun(Task task) override;
  void PostLong(Task task) override;
  absl::Time Now() override { return MonotonicNow(); }
  bool IsCurrent() const override;
  // Runs what was posted before and joins; Posts that follow are dropped. Idempotent, not from a
  // task.
  void Stop();
  // Runs `task` on the executor and waits for it. Not from the executor itself. On a stopped
  // executor it returns without having run it.
  void RunAndWait(Task task);

 private:
  void Run();
  // While too many tasks wait. Whoever runs tasks here must not wait for itself.
  void AwaitRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the thread has to be woken up, once the lock is let go.
  bool Push(Task task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string name_;
  AfterBatch after_batch_;
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::condition_variable_any drained_;
  std::vector<Task> queue_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;   // somebody runs tasks
  bool sleeping_ ABSL_GUARDED_BY(mutex_) = false;  // the thread waits, at most until `wakes_at_`
  absl::Time wakes_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Time next_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // what after_batch_ asked for
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ferry
