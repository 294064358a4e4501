// SPDX-License-Identifier: Apache-2.0
// A client that starts, as another process, and receives its first transfer: what each step of that
// takes. Its program calls what libferry would call in the middle of it (cuInit, the GPU's context)
// by itself before, so that the steps can be told apart; their sum is the same. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/gpu/reporter.h"

namespace ferry::bench {

struct FirstTransferOf {
  std::string client_dir;
  std::string domain;
  uint64_t device = 0;  // of its own daemon
  uint64_t remote_device = 0;
  uint64_t bytes = 0;
  int route = 0;
  int cuda_device = 0;  // the same as `device`, as the driver counts
};

// Under which its partner sends.
inline constexpr uint64_t kFirstKey = 1;

struct FirstTransferTimes {
  absl::Duration process;   // until its first line runs
  absl::Duration session;   // attached to the daemon
  absl::Duration init;      // libcuda, cuInit
  absl::Duration context;   // its own on the GPU
  absl::Duration arena;     // allocated by the daemon, which opens a context if it has none; mapped
  absl::Duration transfer;  // from its post on
  absl::Duration another;   // after that: one more arena, when all is there
  absl::Duration all() const { return process + session + init + context + arena + transfer; }
};

class FirstTransfer {
 public:
  // `self` runs RunFirstTransfer with the same arguments. Returns when the transfer is over. The
  // client lives as long as the object does.
  static absl::StatusOr<FirstTransfer> Start(const std::string& self, const FirstTransferOf& of);

  const FirstTransferTimes& times() const { return times_; }

 private:
  FirstTransfer(Reporter process, const FirstTransferTimes& times)
      : process_(std::move(process)), times_(times) {}

  Reporter process_;
  FirstTransferTimes times_;
};

inline constexpr int kFirstTransferArguments = 8;  // of Start's process, besides its name and role
int RunFirstTransfer(char** arguments, int socket);

}  // namespace ferry::bench
