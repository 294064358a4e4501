// SPDX-License-Identifier: Apache-2.0
// Speaks systemd's protocol with whatever started the daemon and watches it: takes over sockets
// that were opened for the daemon ($LISTEN_FDS), and sends datagrams that say how the daemon is
// ($NOTIFY_SOCKET). If neither variable is set, does nothing. Why not libsystemd:
// docs/decisions/2026-11-26-systemd-without-its-library.md. One thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/fd.h"

namespace ferry {

// Listening sockets by name: "client", "attach", "admin", "metrics".
using GivenSockets = std::map<std::string, UniqueFd>;

class Supervisor {
 public:
  using Environment = std::map<std::string, std::string>;
  // Takes from `environment` what is meant for the process `self`, and ignores what is meant for
  // another.
  Supervisor(const Environment& environment, pid_t self);

  // Takes the sockets that systemd passed (descriptors 3 and up). Call it once. A socket of unknown
  // name is closed and named in the log. INVALID_ARGUMENT/CONFIG_INVALID if a name comes twice.
  absl::StatusOr<GivenSockets> TakeSockets();

  // Whether a supervisor listens ($NOTIFY_SOCKET is set).
  bool present() const { return !path_.empty(); }
  // The supervisor ends this process if Alive is not called for this long. InfiniteDuration(): it
  // does not watch.
  absl::Duration watchdog() const { return watchdog_; }

  // None of the following waits; a datagram that cannot be sent is lost. `status` is one line for
  // people. Ready: the daemon serves.
  void Ready(absl::string_view status);
  // The daemon reads its configuration again; over with the next Ready.
  void Reloading(absl::string_view status);
  // A sign of life, for watchdog().
  void Alive(absl::string_view status);
  // Part of the daemon stands still: sends the status, and no sign of life.
  void Silent(absl::string_view status);
  // The process ends from now on. The supervisor grants it `more` time from now; a further call
  // grants it again.
  void Stopping(absl::string_view status, absl::Duration more);

 private:
  void Send(absl::string_view words, absl::string_view status);

  // Path of the supervisor's socket; "@..." is an abstract one; "": nobody listens.
  std::string path_;
  absl::Duration watchdog_ = absl::InfiniteDuration();
  int sockets_ = 0;    // how many sockets were passed
  std::string names_;  // their names, with ':' between
};

}  // namespace ferry
