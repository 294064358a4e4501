// SPDX-License-Identifier: Apache-2.0
// Whether threads that must never stand still go on: each is asked by a task, and whoever has not
// run the last one is silent. Outlives the executors' last tasks. One thread, but for the tasks.
#pragma once

#include <atomic>
#include <deque>
#include <string>
#include <vector>

#include "base/executor.h"

namespace ferry {

class Pulse {
 public:
  // Before the first Beat; `home` (not owned) outlives it. `answer` runs there each time.
  void Add(std::string name, Executor& home, std::function<void()> answer = nullptr);
  // Those that have not answered what the Beat before asked; asks all others again. The first one
  // finds nobody silent.
  std::vector<std::string> Beat();

 private:
  struct Home {
    Home(std::string name, Executor& executor, std::function<void()> answer)
        : name(std::move(name)), executor(&executor), answer(std::move(answer)) {}
    const std::string name;
    Executor* const executor;
    const std::function<void()> answer;  // the executor's
    std::atomic<bool> answered = true;
  };
  std::deque<Home> homes_;  // tasks know where they are
};

}  // namespace ferry
