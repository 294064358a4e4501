// SPDX-License-Identifier: Apache-2.0
// What started the daemon and looks after it, as systemd says it: sockets that were opened for the
// daemon ($LISTEN_FDS), and datagrams that say how it goes ($NOTIFY_SOCKET). Where neither is set
// nobody is told anything. Why not libsystemd:
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
  // Of `environment` what is meant for process `self`.
  Supervisor(const Environment& environment, pid_t self);

  // Once: their descriptors are this process's from the first of systemd's (3) on. Those of unknown
  // name are closed, and told in the log. INVALID_ARGUMENT/CONFIG_INVALID if a name comes twice.
  absl::StatusOr<GivenSockets> TakeSockets();

  // Whether somebody listens.
  bool present() const { return !path_.empty(); }
  // It must hear Alive() so often, or it ends this process; InfiniteDuration(): it does not ask.
  absl::Duration watchdog() const { return watchdog_; }

  // Never waits; what cannot be sent is lost. `status` is one line for people.
  void Ready(absl::string_view status);
  // It reads its configuration again, until Ready is called.
  void Reloading(absl::string_view status);
  void Alive(absl::string_view status);
  // Something does not go on: a line, and no sign of life.
  void Silent(absl::string_view status);
  // From now on this process ends; it is given `more` from now, again with each call.
  void Stopping(absl::string_view status, absl::Duration more);

 private:
  void Send(absl::string_view words, absl::string_view status);

  std::string path_;  // as systemd writes it: "@..." is an abstract one; "": nobody listens
  absl::Duration watchdog_ = absl::InfiniteDuration();
  int sockets_ = 0;    // how many were given
  std::string names_;  // theirs, with ':' between
};

}  // namespace ferry
