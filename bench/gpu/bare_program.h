// SPDX-License-Identifier: Apache-2.0
// A process that only initializes CUDA and opens a GPU's context: what every client pays before
// libferry begins. It holds the context as long as the object lives. One thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/gpu/reporter.h"

namespace ferry::bench {

struct CudaStart {
  absl::Duration init;     // opening libcuda, and cuInit
  absl::Duration context;  // opening the primary context
};
// Does it in this process; call it once. Nothing if there is no such GPU.
std::optional<CudaStart> StartCuda(int device);

class BareProgram {
 public:
  // Starts `self` with the device, so that it calls RunBareProgram.
  static absl::StatusOr<BareProgram> Start(const std::string& self, int device);

  absl::Duration init() const { return times_.init; }
  absl::Duration context() const { return times_.context; }

 private:
  BareProgram(Reporter process, const CudaStart& times)
      : process_(std::move(process)), times_(times) {}

  Reporter process_;
  CudaStart times_;
};

// Writes both times to the socket, and waits until the socket is closed. Returns the exit status.
int RunBareProgram(int device, int socket);

}  // namespace ferry::bench
