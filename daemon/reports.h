// SPDX-License-Identifier: Apache-2.0
// Tells a Supervisor, from the daemon's start to its end, that the daemon is ready, how it is, and
// that it ends. Gives a sign of life only while no thread of the daemon stands still. Home: the
// main thread.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "base/home.h"
#include "daemon/daemon.h"
#include "daemon/supervisor.h"

namespace ferry {

class Reports {
 public:
  // Both objects outlive this one.
  Reports(Daemon& daemon, Supervisor& supervisor) : daemon_(daemon), supervisor_(supervisor) {}

  void Ready(absl::Time now);
  // The configuration is read again, until Ready is called.
  void Reloading();
  // Tell must be called at least this often.
  absl::Duration period() const;
  // Reports how the daemon is; does nothing if it is too early.
  void Tell(absl::Time now);
  // From now on Tell reports how the daemon ends.
  void Stopping(absl::Time now);

  // The text of systemd's STATUS=: "serving 2 devices, 1 session, 40 transfers and jobs".
  static std::string Line(const Daemon::Vitals& vitals, bool stopping);

 private:
  Daemon::Vitals Look(absl::Time now);
  Daemon& daemon_;
  Supervisor& supervisor_;
  absl::Time next_ = absl::InfinitePast();
  bool stopping_ = false;
  std::string silent_;  // the threads that stood still at the last look
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
