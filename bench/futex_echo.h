// SPDX-License-Identifier: Apache-2.0
// The least that two processes take to answer each other asleep: a word each, and futexes. What
// prepared transfers are measured against. One thread at each end.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/ferryctl/child_process.h"

namespace ferry::bench {

// The other end, on the shared page behind `memfd`, until the process that made it is gone.
int RunFutexEcho(int memfd);

class FutexEcho {
 public:
  // `self` futex-echo runs RunFutexEcho(3).
  static absl::StatusOr<FutexEcho> Start(const std::string& self);
  absl::Duration RoundTrip();

 private:
  struct Words;
  friend int RunFutexEcho(int memfd);
  FutexEcho(tools::ChildProcess other, Words* words) : other_(std::move(other)), words_(words) {}
  tools::ChildProcess other_;
  Words* words_;  // of a page that is never unmapped
};

}  // namespace ferry::bench
