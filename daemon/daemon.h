// SPDX-License-Identifier: Apache-2.0
// ferryd whole: builds everything in order, stops everything in reverse, and alone knows every
// concrete type. The public functions are for the main thread (or a test's), but for those that say
// otherwise.
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
  // Serving when it returns. Errors name what could not be had (socket, port, device). What is in
  // `given` is listened on instead of a socket of the daemon's own, and left where it is at the
  // end.
  // `ask_reload` (any thread) is called when an operator asks for a reload: then Reload is to be
  // called soon. Null: operators are refused that.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(Config config, GivenSockets given = {},
                                                       std::function<void()> ask_reload = nullptr);
  // What Start, by this user on this host, would refuse of a configuration that LoadConfig takes:
  // files and addresses that it names. Not looked at is what may be in use, and GPUs. All problems,
  // one a line.
  static absl::Status Check(const Config& config);
  // Stops without draining: clients see the daemon go.
  ~Daemon();

  // Takes no new sessions and transfers, waits for what is in flight up to `timeout`, then ends the
  // rest. Returns how many transfers did not end well because of that. `interrupted` (any thread)
  // cuts the wait short.
  uint64_t Drain(absl::Duration timeout, const std::function<bool()>& interrupted);

  // Goes over to what `load` returns, or stays as it was and says why, in the log and to the
  // operators who asked. What a reload takes, and what only a restart: daemon/config/config.h.
  void Reload(const std::function<absl::StatusOr<Config>()>& load);
  // From now on operators who ask for a reload are told that the daemon stops.
  void RefuseReloads();
  // As the configuration has it now.
  absl::Duration drain_timeout() const;

  // How it goes. The counts are as of the call before.
  struct Vitals {
    size_t devices = 0;
    size_t sessions = 0;
    size_t in_flight = 0;  // transfers and jobs
    // Of control and the devices' lanes those that were asked for a sign of life by a call of
    // `patience` ago or earlier, and have given none.
    std::vector<std::string> silent;
  };
  Vitals Look(absl::Time now, absl::Duration patience);

  // Of this daemon, also if the configuration said port 0. 0 if it does not listen.
  int peer_port() const;

 private:
  struct Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
