// SPDX-License-Identifier: Apache-2.0
#include "daemon/pulse.h"

#include <utility>

namespace ferry {

void Pulse::Add(std::string name, Executor& home, std::function<void()> answer) {
  homes_.emplace_back(std::move(name), home, std::move(answer));
}

std::vector<std::string> Pulse::Beat(absl::Time now, absl::Duration patience) {
  std::vector<std::string> silent;
  for (Home& home : homes_) {
    if (!home.answered.exchange(false)) {
      if (home.asked + patience <= now) silent.push_back(home.name);
      continue;
    }
    home.asked = now;
    home.executor->Post([&home] {
      if (home.answer) home.answer();
      home.answered = true;
    });
  }
  return silent;
}

}  // namespace ferry
