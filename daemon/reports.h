// SPDX-License-Identifier: Apache-2.0
// What a Supervisor is told from start to end: that the daemon is ready, how it goes, that it ends.
// Alive only while nothing of it stands still. Home: the main thread.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "daemon/daemon.h"
#include "daemon/supervisor.h"

namespace ferry {

class Reports {
 public:
  // Both outlive it.
  Reports(Daemon& daemon, Supervisor& supervisor) : daemon_(daemon), supervisor_(supervisor) {}

  void Ready(absl::Time now);
  // Until Ready is called again.
  void Reloading();
  // At most so long between two calls of Tell.
  absl::Duration period() const;
  // Does nothing before it is time again.
  void Tell(absl::Time now);
  // From now on what is told is how it ends.
  void Stopping(absl::Time now);

  // Of supervisor's STATUS=: "serving 2 devices, 1 session, 40 transfers and jobs".
  static std::string Line(const Daemon::Vitals& vitals, bool stopping);

 private:
  Daemon::Vitals Look(absl::Time now);
  Daemon& daemon_;
  Supervisor& supervisor_;
  absl::Time next_ = absl::InfinitePast();
  bool stopping_ = false;
  std::string silent_;  // of the last look
};

}  // namespace ferry
