// SPDX-License-Identifier: Apache-2.0
// The least that two processes take to answer each other asleep: a word each, and futexes. What
// prepared transfers are measured against. One thread at each end. Where the scheduler leaves both
// on one core they are a context switch apart; an idle core has to be woken, which in a virtual
// machine takes ten times as long.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/ferryctl/child_process.h"

namespace ferry::bench {

enum class FutexRoad {
  kPair,          // two processes, wherever the scheduler leaves them
  kTwoCores,      // kept on different cores, this one's thread for as long as RoundTrip lasts
  kThroughThird,  // a third process passes on what either says, as a daemon between two clients
                  // must
};

// Another process of a road, on the shared page behind `memfd`, until the one that made it is gone.
// `role` is what Start gives as an argument.
int RunFutexEcho(int memfd, const std::string& role);

class FutexEcho {
 public:
  // `self` futex-echo ROLE runs RunFutexEcho(3, ROLE).
  static absl::StatusOr<FutexEcho> Start(const std::string& self, FutexRoad road);
  absl::Duration RoundTrip();

 private:
  struct Words;
  friend int RunFutexEcho(int memfd, const std::string& role);
  FutexEcho(std::vector<tools::ChildProcess> others, Words* words, FutexRoad road)
      : others_(std::move(others)), words_(words), road_(road) {}
  std::vector<tools::ChildProcess> others_;
  Words* words_;  // of a page that is never unmapped
  FutexRoad road_;
};

}  // namespace ferry::bench
