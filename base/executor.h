// SPDX-License-Identifier: Apache-2.0
// An Executor runs tasks one at a time, in the order in which they were posted, and tells the time.
// A class's "home" is an Executor (base/home.h): state that lives on one executor needs no lock.
// Post is allowed from any thread and never runs the task inline.
#pragma once

#include <condition_variable>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/home.h"
#include "base/mutex.h"

namespace ferry {

using Task = absl::AnyInvocable<void()>;

class Executor {
 public:
  virtual ~Executor() = default;
  virtual void Post(Task task) = 0;
  // As Post, but may run the task here and now if the executor is idle, which saves a wake-up of
  // its thread. If too many tasks wait, it blocks until they have run: so work that arrives faster
  // than it is done stays outside. Only for callers that hold no lock and may block for a moment.
  virtual void PostOrRun(Task task) { Post(std::move(task)); }
  // As PostOrRun, for a task that takes long: the executor's thread runs it, while the caller goes
  // on.
  virtual void PostLong(Task task) { Post(std::move(task)); }
  // Monotonic time, as an absl::Time whose origin means nothing.
  virtual absl::Time Now() = 0;
  // Whether the caller runs on this executor.
  virtual bool IsCurrent() const = 0;
};

// Monotonic time in absl's type. A change of the wall clock moves no deadline.
absl::Time MonotonicNow();

// An executor with a thread of its own. A thread that calls PostOrRun while the executor is idle
// may run tasks too; they still run one at a time, in order, and each sees what those before it
// did.
//
// `after_tasks` runs after each run of tasks before the thread waits again, and within a run each
// time that this has lasted for kLongRun. It returns when it must run next at the latest
// (absl::InfiniteFuture(): only after tasks). Timers, and the sending of what tasks have collected,
// live there.
class SerialExecutor : public Executor {
 public:
  using AfterTasks = absl::AnyInvocable<absl::Time()>;
  // With this many waiting tasks PostOrRun and PostLong block.
  static constexpr size_t kMostWaiting = 1024;
  static constexpr absl::Duration kLongRun = absl::Milliseconds(5);

  explicit SerialExecutor(std::string name);
  // Runs what was posted before, then joins the thread.
  ~SerialExecutor() override;

  // Only before the first Post.
  void SetAfterTasks(AfterTasks after_tasks);
  void Post(Task task) override;
  void PostOrRun(Task task) override;
  void PostLong(Task task) override;
  absl::Time Now() override { return MonotonicNow(); }
  bool IsCurrent() const override { return home_.IsCurrent(); }
  // Runs what was posted before and joins the thread; tasks that are posted later are dropped.
  // Idempotent. Must not be called from a task.
  void Stop();
  // Runs `task` on the executor and waits for it. Must not be called on the executor. On a stopped
  // executor it returns without running the task.
  void RunAndWait(Task task);

 private:
  void Run();
  // Blocks while too many tasks wait. A thread that runs tasks of this executor does not block.
  void AwaitRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether the thread must be woken up, once the lock is released.
  bool Push(Task task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Home home_;
  AfterTasks after_tasks_;
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::condition_variable_any drained_;
  std::vector<Task> queue_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;   // a thread runs tasks
  bool sleeping_ ABSL_GUARDED_BY(mutex_) = false;  // the thread waits, at most until `wakes_at_`
  absl::Time wakes_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // When after_tasks_ wants to run.
  absl::Time next_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ferry
