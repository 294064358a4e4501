// SPDX-License-Identifier: Apache-2.0
// The threads that run the programs of one owner: one budget for all runs, however many there are
// at a time. Nobody waits for a thread: a caller does its work itself as far as no other thread is
// idle. Any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <list>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "base/mutex.h"

namespace ferry::compute {

class Workers {
 public:
  // `threads` is at least 1, and includes the callers of Run().
  explicit Workers(size_t threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  size_t threads() const { return threads_.size() + 1; }
  // Calls `part` with 0, 1, ... `parts` - 1, in any order, several at once; returns when all calls
  // have returned.
  void Run(size_t parts, absl::FunctionRef<void(size_t)> part) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Job {
    absl::FunctionRef<void(size_t)> part;
    size_t parts = 0;
    size_t begun = 0;
    size_t over = 0;
  };

  void Work() ABSL_LOCKS_EXCLUDED(mutex_);
  // Does the job's next part.
  void RunPart(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::condition_variable_any changed_;
  std::list<Job*> jobs_ ABSL_GUARDED_BY(mutex_);  // jobs with parts that are not begun
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace ferry::compute
