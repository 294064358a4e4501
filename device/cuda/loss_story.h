// SPDX-License-Identifier: Apache-2.0
// What is said when the process's GPUs are lost, which ends the process: each LossStory that lives
// says what its owner had under way. Any thread.
#pragma once

#include <functional>
#include <string>

namespace ferry {

class LossStory {
 public:
  // What has happened.
  struct Loss {
    std::string what;  // what was being done, and CUDA's error
    // A kernel did what it must not. False if hardware or the driver failed.
    bool fault = false;
    // The driver's number of the GPU whose context the thread that found the loss had current.
    // -1: it had none.
    int gpu = -1;
  };
  // Called by whichever thread finds the GPUs lost, while other threads go on: it reads atomics
  // only, and calls nothing of CUDA. It may write a file. What it returns is one sentence without a
  // full stop; "": there is nothing to tell.
  using Tell = std::function<std::string(const Loss& loss)>;
  explicit LossStory(Tell tell);
  ~LossStory();
  LossStory(const LossStory&) = delete;
  LossStory& operator=(const LossStory&) = delete;

  // What all stories tell, each after "; "; "" if there is nothing to tell. If several threads find
  // the loss, they have the stories told one after the other.
  static std::string All(const Loss& loss);

  // The calling thread has the context of this GPU current from now on, for Loss::gpu.
  static void AtGpu(int ordinal);
  static int gpu_of_thread();

 private:
  const Tell tell_;
};

}  // namespace ferry
