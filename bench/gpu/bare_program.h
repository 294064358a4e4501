// SPDX-License-Identifier: Apache-2.0
// A process that does nothing but to initialize CUDA and to open a GPU's context: what every client
// pays before libferry has its turn. Holds the context as long as the object lives. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "tools/ferryctl/child_process.h"

namespace ferry::bench {

class BareProgram {
 public:
  // `self` and the device run RunBareProgram.
  static absl::StatusOr<BareProgram> Start(const std::string& self, int device);

  absl::Duration init() const { return init_; }        // of cuInit
  absl::Duration context() const { return context_; }  // of the primary context

 private:
  BareProgram(tools::ChildProcess process, UniqueFd socket)
      : process_(std::move(process)), socket_(std::move(socket)) {}

  tools::ChildProcess process_;
  UniqueFd socket_;
  absl::Duration init_, context_;
};

// Writes both times to the socket, and waits until it is closed.
int RunBareProgram(int device, int socket);

}  // namespace ferry::bench
