// SPDX-License-Identifier: Apache-2.0
// A client in another process that starts and receives its first transfer: the time of each step.
// The client itself calls what libferry would call in the middle (cuInit, the GPU's context) before
// libferry does, so that the steps can be told apart. Their sum is the same. One thread.
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
  uint64_t device = 0;  // a device of the client's own daemon
  uint64_t remote_device = 0;
  uint64_t bytes = 0;
  int route = 0;
  int cuda_device = 0;  // the same as `device`, by the driver's index
};

// The key under which its partner sends.
inline constexpr uint64_t kFirstKey = 1;

struct FirstTransferTimes {
  absl::Duration process;  // from its start to the first line of its main
  absl::Duration session;  // attach to the daemon
  absl::Duration init;     // libcuda and cuInit
  absl::Duration context;  // the client's own context on the GPU
  // The daemon allocates it, and opens a context if it has none; the client maps it
  absl::Duration arena;
  absl::Duration transfer;  // from its post to its end
  absl::Duration another;   // one more arena after that
  absl::Duration all() const { return process + session + init + context + arena + transfer; }
};

class FirstTransfer {
 public:
  // Starts `self`, so that it calls RunFirstTransfer with the same arguments. Returns when the
  // transfer is over. The client lives as long as the object.
  static absl::StatusOr<FirstTransfer> Start(const std::string& self, const FirstTransferOf& of);

  const FirstTransferTimes& times() const { return times_; }

 private:
  FirstTransfer(Reporter process, const FirstTransferTimes& times)
      : process_(std::move(process)), times_(times) {}

  Reporter process_;
  FirstTransferTimes times_;
};

// How many arguments the started process has, besides its name and role.
inline constexpr int kFirstTransferArguments = 8;
int RunFirstTransfer(char** arguments, int socket);

}  // namespace ferry::bench
