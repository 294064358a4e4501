// SPDX-License-Identifier: Apache-2.0
// The shortest time in which two sleeping processes can answer each other: one word each, and
// futexes. Prepared transfers are compared with it. One thread at each end. Where the scheduler
// leaves both on one core, they are a context switch apart. Else an idle core must be woken, which
// takes ten times as long in a virtual machine.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/ferryctl/child_process.h"

namespace ferry::bench {

enum class FutexRoad {
  kPair,      // two processes, on the cores where the scheduler leaves them
  kTwoCores,  // the two are kept on different cores while RoundTrip lasts
  // A third process passes on what either says, as a daemon between two clients does
  kThroughThird,
};

// Runs another process of `road` on the shared page behind `memfd`, until the process that made it
// is gone. `role` is the argument that Start passes.
int RunFutexEcho(int memfd, const std::string& role);

class FutexEcho {
 public:
  // Starts `self` with the arguments futex-echo ROLE, so that it calls RunFutexEcho(3, ROLE).
  static absl::StatusOr<FutexEcho> Start(const std::string& self, FutexRoad road);
  absl::Duration RoundTrip();

 private:
  struct Words;
  friend int RunFutexEcho(int memfd, const std::string& role);
  FutexEcho(std::vector<tools::ChildProcess> others, Words* words, FutexRoad road)
      : others_(std::move(others)), words_(words), road_(road) {}
  std::vector<tools::ChildProcess> others_;
  Words* words_;  // in a page that is never unmapped
  FutexRoad road_;
};

}  // namespace ferry::bench
