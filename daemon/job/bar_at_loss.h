// SPDX-License-Identifier: Apache-2.0
// BarAtLoss acts when the process loses its GPUs, and before the process ends of it. It bars the
// programs that the GPUs ran, so that the next life of the daemon does not run them on GPUs, and
// names them among the last words.
// Home: any thread, but Add, which must be called before anything runs.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "daemon/job/barred_programs.h"
#include "daemon/job/computer.h"
#include "device/cuda/loss_story.h"

namespace ferry {

class BarAtLoss {
 public:
  // `barred` outlives this object.
  explicit BarAtLoss(BarredPrograms& barred) : barred_(barred) {}

  // A GPU that computes, which outlives this object.
  void Add(GlobalDeviceId device, const GpuComputer& computer) {
    computers_.emplace_back(device, &computer);
  }

 private:
  std::string Tell(const LossStory::Loss& loss);

  BarredPrograms& barred_;
  std::vector<std::pair<GlobalDeviceId, const GpuComputer*>> computers_;
  std::atomic<bool> told_{false};
  const LossStory story_{[this](const LossStory::Loss& loss) { return Tell(loss); }};
};

}  // namespace ferry
