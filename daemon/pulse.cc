// SPDX-License-Identifier: Apache-2.0
#include "daemon/pulse.h"

#include <utility>

namespace ferry {

void Pulse::Add(std::string name, Executor& home, std::function<void()> answer) {
  homes_.emplace_back(std::move(name), home, std::move(answer));
}

std::vector<std::string> Pulse::Beat() {
  std::vector<std::string> silent;
  for (Home& home : homes_) {
    if (!home.answered.exchange(false)) {
      silent.push_back(home.name);
      continue;
    }
    home.executor->Post([&home] {
      if (home.answer) home.answer();
      home.answered = true;
    });
  }
  return silent;
}

}  // namespace ferry
