// SPDX-License-Identifier: Apache-2.0
// The least that two processes take to answer each other asleep: a word each, and futexes. What
// prepared transfers are measured against. One thread at each end. Where the scheduler leaves both
// on one core they are a context switch apart; an idle core has to be woken, which in a virtual
// machine takes ten times as long.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/ferryctl/child_process.h"

namespace ferry::bench {

enum class Cores { kAny, kTwo };

// The other end, on the shared page behind `memfd`, until the process that made it is gone.
int RunFutexEcho(int memfd, Cores cores);

class FutexEcho {
 public:
  // `self` futex-echo runs RunFutexEcho(3, kAny), with a further argument "two" (3, kTwo): then the
  // ends are kept on different cores, this one's thread for as long as RoundTrip lasts.
  static absl::StatusOr<FutexEcho> Start(const std::string& self, Cores cores = Cores::kAny);
  absl::Duration RoundTrip();

 private:
  struct Words;
  friend int RunFutexEcho(int memfd, Cores cores);
  FutexEcho(tools::ChildProcess other, Words* words, Cores cores)
      : other_(std::move(other)), words_(words), cores_(cores) {}
  tools::ChildProcess other_;
  Words* words_;  // of a page that is never unmapped
  Cores cores_;
};

}  // namespace ferry::bench
