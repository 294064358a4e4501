// SPDX-License-Identifier: Apache-2.0
// ferryd whole: builds everything in order, stops everything in reverse, and alone knows every
// concrete type. The public functions are for the main thread (or a test's), but for those that say
// otherwise.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/config/config.h"

namespace ferry {

class Daemon {
 public:
  // Serving when it returns. Errors name what could not be had (socket, port, device).
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(Config config);
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

  // Of this daemon, also if the configuration said port 0. 0 if it does not listen.
  int peer_port() const;

 private:
  struct Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
