// SPDX-License-Identifier: Apache-2.0
// What is said when the process's GPUs are lost, which ends the process: each LossStory that lives
// says what its owner had under way. Any thread.
#pragma once

#include <functional>
#include <string>

namespace ferry {

class LossStory {
 public:
  // `tell` is called by whichever thread finds the GPUs lost, while other threads go on: it reads
  // atomics only, and calls nothing of CUDA. What it returns is one sentence without a full stop;
  // "": nothing was under way.
  explicit LossStory(std::function<std::string()> tell);
  ~LossStory();
  LossStory(const LossStory&) = delete;
  LossStory& operator=(const LossStory&) = delete;

  // What all stories tell, each after "; "; "" if there is nothing to tell.
  static std::string All();

 private:
  const std::function<std::string()> tell_;
};

}  // namespace ferry
