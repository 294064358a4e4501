// SPDX-License-Identifier: Apache-2.0
#include "daemon/pulse.h"

#include <utility>

namespace ferry {

void Pulse::Add(std::string name, Executor& executor, std::function<void()> answer) {
  home_.Check();
  threads_.emplace_back(std::move(name), executor, std::move(answer));
}

std::vector<std::string> Pulse::Beat(absl::Time now, absl::Duration patience) {
  home_.Check();
  std::vector<std::string> silent;
  for (Thread& thread : threads_) {
    if (!thread.answered.exchange(false)) {
      if (thread.asked + patience <= now) silent.push_back(thread.name);
      continue;
    }
    thread.asked = now;
    thread.executor->Post([&thread] {
      if (thread.answer) thread.answer();
      thread.answered = true;
    });
  }
  return silent;
}

}  // namespace ferry
