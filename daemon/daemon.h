// SPDX-License-Identifier: Apache-2.0
// The whole of ferryd: builds all parts in order and stops them in reverse order. It alone knows
// every concrete type, and owns them all. The public functions are for the main thread (or a
// test's) unless they say otherwise.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/config/config.h"
#include "daemon/supervisor.h"

namespace ferry {

class Daemon {
 public:
  // Returns when the daemon serves. An error names what could not be had: a socket, a port, a
  // device. A socket in `given` is used instead of one of the daemon's own, and is not removed at
  // the end. `ask_reload` (any thread) is called when an operator asks for a reload; the owner must
  // call Reload soon. With a null `ask_reload` operators' requests to reload are refused.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(Config config, GivenSockets given = {},
                                                       std::function<void()> ask_reload = nullptr);
  // Everything, one problem a line, that Start would refuse of a configuration that LoadConfig
  // takes, for this user on this host: files and addresses that the configuration names. GPUs are
  // not looked at, nor whether something is in use.
  static absl::Status Check(const Config& config);
  // Stops without draining: clients see the daemon go.
  ~Daemon();

  // Takes no new sessions and transfers, waits up to `timeout` for those in flight, and then ends
  // the rest. Returns how many transfers failed because of that. `interrupted` (any thread) ends
  // the wait early when it returns true.
  uint64_t Drain(absl::Duration timeout, const std::function<bool()>& interrupted);

  // Goes over to the configuration that `load` returns, or stays as it was. The log, and the
  // operators who asked, are told which, and why. What a reload may change and what takes a
  // restart: daemon/config/config.h.
  void Reload(const std::function<absl::StatusOr<Config>()>& load);
  // From now on operators who ask for a reload are told that the daemon stops.
  void RefuseReloads();
  // The drain timeout of the present configuration.
  absl::Duration drain_timeout() const;

  // The state of the daemon, for a Supervisor. The counts are as of the call before.
  struct Vitals {
    size_t devices = 0;
    size_t sessions = 0;
    size_t in_flight = 0;  // transfers and jobs
    // Names of threads (control, the lanes) that were asked for a sign of life at least `patience`
    // ago, by an earlier call, and have given none.
    std::vector<std::string> silent;
  };
  Vitals Look(absl::Time now, absl::Duration patience);

  // The port on which peers reach this daemon, even if the configuration said port 0. 0 if it does
  // not listen.
  int peer_port() const;

 private:
  struct Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
