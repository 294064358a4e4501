// SPDX-License-Identifier: Apache-2.0
// Tells which threads stand still that never should: each gets a task, and a thread that has not
// run its last task is silent. Outlives the executors' last tasks. Home: the main thread.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/executor.h"
#include "base/home.h"

namespace ferry {

class Pulse {
 public:
  // Adds the thread of `executor`; only before the first Beat. `executor` is not owned and outlives
  // this. `answer` runs on it each time that it answers.
  void Add(std::string name, Executor& executor, std::function<void()> answer = nullptr);
  // Gives a task to each thread that has run its last one. Returns the names of threads whose task
  // was given at least `patience` ago and has not run. So of two beats in a row the second finds
  // nobody silent.
  std::vector<std::string> Beat(absl::Time now, absl::Duration patience);

 private:
  struct Thread {
    Thread(std::string name, Executor& executor, std::function<void()> answer)
        : name(std::move(name)), executor(&executor), answer(std::move(answer)) {}
    const std::string name;
    Executor* const executor;
    const std::function<void()> answer;  // runs on `executor`
    std::atomic<bool> answered = true;
    absl::Time asked;
  };
  std::deque<Thread> threads_;  // a deque: tasks keep pointers to its entries
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
