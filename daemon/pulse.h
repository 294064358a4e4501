// SPDX-License-Identifier: Apache-2.0
// Whether threads that must never stand still go on: each is asked by a task, and whoever has not
// run the last one is silent. Outlives the executors' last tasks. One thread, but for the tasks.
#pragma once

#include <atomic>
#include <deque>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/executor.h"

namespace ferry {

class Pulse {
 public:
  // Before the first Beat; `home` (not owned) outlives it. `answer` runs there each time.
  void Add(std::string name, Executor& home, std::function<void()> answer = nullptr);
  // Asks all that have answered. Those that were asked `patience` ago or earlier and have not
  // answered: of two beats that follow each other at once, the second finds nobody silent.
  std::vector<std::string> Beat(absl::Time now, absl::Duration patience);

 private:
  struct Home {
    Home(std::string name, Executor& executor, std::function<void()> answer)
        : name(std::move(name)), executor(&executor), answer(std::move(answer)) {}
    const std::string name;
    Executor* const executor;
    const std::function<void()> answer;  // the executor's
    std::atomic<bool> answered = true;
    absl::Time asked;
  };
  std::deque<Home> homes_;  // tasks know where they are
};

}  // namespace ferry
